"""What can be learnt from, and what is said where something cannot."""

# ruff: noqa: S608  # tests write SQL

import re

import pytest

from corgipile.errors import BadArgument
from corgipile.settings import TrainSettings, declared


@pytest.fixture(scope="module", autouse=True)
def tables(server):
    """Make a small good table and one where each kind of bad row can be put."""
    server.sql("""
        CREATE TABLE good AS SELECT ARRAY[i % 2 - 0.5, i / 100.0]::real[] AS x, i % 2 AS label, i % 3 AS three,
            i AS gone, 'a'::text AS word FROM generate_series(0, 99) i;
        ALTER TABLE good DROP COLUMN gone;
        CREATE TABLE bad (x float8[], label float8);
        CREATE TABLE nothing (x real[], label int);
        CREATE ROLE stranger LOGIN;
        CREATE TABLE hidden AS SELECT * FROM good;
        CREATE TABLE half AS SELECT * FROM good;
        GRANT SELECT (x, label) ON half TO stranger;
    """)


BAD_ROWS = {
    "NULL": ("NULL in feature column", "NULL, 1"),
    "NULL element": ("holds a NULL", "'{1, NULL}', 1"),
    "ragged": ("has 3 numbers in column", "'{1, 2, 3}', 1"),
    "empty": ("has 0 numbers in column", "'{}', 1"),
    "two dimensions": ("array of 2 dimensions", "'{{1, 2}}', 1"),
    "NaN": ("feature that is NaN or infinite", "'{1, NaN}', 1"),
    "infinite": ("feature that is NaN or infinite", "'{1, -Infinity}', 1"),
    "NULL label": ("NULL in label column", "'{1, 2}', NULL"),
    "NaN label": ("has label nan", "'{1, 2}', 'NaN'"),
    "third class": ("a logistic model takes two", "'{1, 2}', 7"),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_bad_row_is_named(server, fails, kind):
    said, values = BAD_ROWS[kind]
    server.sql(f"""
        TRUNCATE bad;
        INSERT INTO bad SELECT ARRAY[i, 1], i % 2 FROM generate_series(1, 300) i;
        INSERT INTO bad VALUES ({values});
        INSERT INTO bad SELECT ARRAY[i, 1], i % 2 FROM generate_series(1, 300) i;
    """)
    message = fails("SELECT * FROM corgipile.train('bad', 'logistic', 'x', 'label', name => 'never')").lower()
    assert said.lower() in message
    if kind != "third class":
        where = server.value("SELECT ctid::text FROM bad WHERE NOT coalesce(x[1] > 0 AND array_length(x, 1) = 2 "
                             "AND x[2] = 1 AND label IN (0, 1), false)")  # fmt: skip
        assert f"row {where}" in message
    assert server.rows("SELECT * FROM corgipile.models WHERE name = 'never'") == []


BAD_PAIRS = {
    "NULL indices": ('NULL in feature column "k"', "NULL, '{1}'"),
    "NULL values": ('NULL in feature column "v"', "'{1}', NULL"),
    "NULL index": ('column "k" holds a NULL', "'{1, NULL}', '{1, 2}'"),
    "NULL value": ('column "v" holds a NULL', "'{1, 2}', '{1, NULL}'"),
    "repeated": ('indices in column "k" that repeat or fall', "'{4, 4}', '{1, 2}'"),
    "falling": ('indices in column "k" that repeat or fall', "'{4, 3}', '{1, 2}'"),
    "negative": ('an index in column "k" outside', "'{-1, 3}', '{1, 2}'"),
    "largest": ('an index in column "k" outside the 134217719 features that a', "'{2147483647}', '{1}'"),
    "too large": ('an index in column "k" outside the 134217719 features that a', "'{1, 134217719}', '{1, 2}'"),
    "lengths": ('2 indices in column "k" and 3 values in column "v"', "'{1, 2}', '{1, 2, 3}'"),
    "two dimensions": ('column "k" is an array of 2 dimensions', "'{{1}, {2}}', '{1, 2}'"),
    "NaN": ("feature that is NaN or infinite", "'{1, 2}', '{1, NaN}'"),
}


@pytest.mark.parametrize("kind", BAD_PAIRS)
@pytest.mark.parametrize("number", ["real", "float8"])
def test_bad_sparse_row_is_named(server, fails, kind, number):
    said, values = BAD_PAIRS[kind]
    server.sql(f"""
        DROP TABLE IF EXISTS pairs;
        CREATE TABLE pairs (k int[], v {number}[], label int);
        INSERT INTO pairs SELECT ARRAY[i, i + 2], ARRAY[1, 2], i % 2 FROM generate_series(1, 300) i;
        INSERT INTO pairs VALUES ({values}, 7);
        INSERT INTO pairs SELECT '{{}}', '{{}}', i % 2 FROM generate_series(1, 300) i;
    """)
    where = server.value("SELECT ctid::text FROM pairs WHERE label = 7")
    message = fails("SELECT * FROM corgipile.train('pairs', 'linear', ARRAY['k', 'v'], 'label')")
    assert said in message
    assert f"row {where}" in message


@pytest.mark.parametrize("kind", [kind for kind in BAD_ROWS if kind != "third class"])
def test_bad_row_is_named_with_its_partition(server, fails, kind):
    """Rows of both partitions have the same addresses, and the buffer mixes them."""
    said, values = BAD_ROWS[kind]
    server.sql(f"""
        DROP TABLE IF EXISTS split;
        CREATE TABLE split (x float8[], label float8, part int) PARTITION BY LIST (part);
        CREATE TABLE "first" PARTITION OF split FOR VALUES IN (1);
        CREATE TABLE "the 2nd" PARTITION OF split FOR VALUES IN (2);
        INSERT INTO split SELECT ARRAY[i, 1], i % 2, part FROM generate_series(1, 300) i, generate_series(1, 2) part;
        INSERT INTO split VALUES ({values}, 2);
        INSERT INTO split SELECT ARRAY[i, 1], i % 2, 1 FROM generate_series(1, 300) i;
    """)
    where = server.value('SELECT max(ctid)::text FROM "the 2nd"')
    for loss in ("logistic", "linear"):
        options = "classes => '{0, 1}', learning_rate => 1e-6"
        call = f"SELECT * FROM corgipile.train('split', '{loss}', 'x', 'label', {options})"
        message = fails(call).lower()
        assert said.lower() in message
        assert f'row {where} of partition "the 2nd"' in message


def test_bad_row_is_named_with_its_child_table(server, fails, train):
    server.sql("""
        CREATE TABLE elder (k int[], v real[], label int);
        CREATE TABLE younger () INHERITS (elder);
        INSERT INTO elder SELECT ARRAY[i], ARRAY[1], i % 2 FROM generate_series(1, 100) i;
        INSERT INTO younger SELECT ARRAY[i], ARRAY[1], i % 2 FROM generate_series(1, 100) i;
    """)
    train("elder", features=["k", "v"], name="elder")
    server.sql("UPDATE younger SET k = ARRAY[101], v = '{NaN}' WHERE k = ARRAY[50]")
    where = server.value("SELECT ctid::text FROM younger WHERE k = ARRAY[101]")
    for call in ("train('elder', 'svm', ARRAY['k', 'v'], 'label')", "evaluate('elder', 'elder')"):
        assert f'row {where} of table "younger" has' in fails(f"SELECT * FROM corgipile.{call}")
    server.sql("DELETE FROM elder WHERE k = ARRAY[101]; UPDATE ONLY elder SET v = NULL WHERE k = ARRAY[50]")
    where = server.value("SELECT ctid::text FROM ONLY elder WHERE v IS NULL")
    message = fails("SELECT * FROM corgipile.train('elder', 'svm', ARRAY['k', 'v'], 'label')")
    assert f'row {where} of table "elder" has a NULL in feature column "v"' in message


def test_sparse_rows_of_all_lengths(server, train):
    """Empty rows, rows that are TOASTed, and a block much heavier than others, in a buffer that holds few blocks."""
    server.sql("""
        CREATE TABLE uneven AS SELECT ARRAY(SELECT 3 * j FROM generate_series(0, n - 1) j) AS k,
            array_fill(i % 2 - 0.5, ARRAY[n]) AS v, i % 2 AS label
        FROM generate_series(1, 2000) i, LATERAL (SELECT CASE WHEN i % 500 = 7 THEN 5000 ELSE i % 12 END AS n) l;
        ALTER TABLE uneven ALTER v TYPE float8[];
    """)
    for order in ("riffle", "corgipile", "no_shuffle"):
        options = {"order": order, "buffer_size": "2MB", "block_size": "8kB", "name": "uneven"}
        assert [epoch["rows"] for epoch in train("uneven", features=["k", "v"], **options)] == [2000] * 2
        model = server.rows(
            "SELECT dims, (params -> 'buffer_bytes')::int AS bytes FROM corgipile.models WHERE name = 'uneven'"
        )[0]
        assert model["dims"] == 3 * 4999 + 1
        assert model["bytes"] <= 2 << 20
    said = "SELECT * FROM corgipile.train('uneven', 'svm', ARRAY['k', 'v'], 'label', buffer_size => '100kB')"
    with pytest.raises(Exception, match="needs at least"):
        server.text(said)


REFUSED = {
    "'good', 'svm', ARRAY['x', 'x'], 'label'": 'sparse features "x" and "x" must be integer[] and real[]',
    "'good', 'tree', 'x', 'label'": "model must be logistic, svm, linear",
    "'good', 'svm:2', 'x', 'label'": 'a svm model has no parameter, got "svm:2"',
    "'good', 'quantile:1', 'x', 'label'": 'tau of a quantile model must be above 0 and below 1, got "quantile:1"',
    "'good', 'huber:-1', 'x', 'label'": 'delta of a huber model must be a finite number above 0, got "huber:-1"',
    "'good', 'squared_hinge', 'x', 'three'": "a squared_hinge model takes two, use softmax, svm or",
    "'good', 'svm', 'y', 'label'": 'has no column "y"',
    "'good', 'svm', 'gone', 'label'": 'has no column "gone"',
    "'good', 'svm', 'ctid', 'label'": 'has no column "ctid"',
    "'good', 'svm', 'x', 'nolabel'": 'has no column "nolabel"',
    "'good', 'svm', 'word', 'label'": 'feature column "word" is text',
    "'good', 'svm', 'x', 'x'": 'label column "x" is real[]',
    "'good', 'svm', 'label', 'label'": "cannot be a feature too",
    "'good', 'svm', ARRAY['x', 'three'], 'label'": "is an array; give it alone",
    "'good', 'svm', '{}'::text[], 'label'": "features is an empty list",
    "'good', 'logistic', 'x', 'three'": "a logistic model takes two, use softmax, svm or ovr_logistic for more",
    "'good', 'svm', 'x', NULL": "label must not be NULL",
    "'good', 'svm', 'x', 'label', threads => 3": "threads must be 1 or 2, got 3",
    "'good', 'svm', 'x', 'label', epochs => 0": "epochs must be 1 to 1000000, got 0",
    "'good', 'svm', 'x', 'label', batch_size => 0": "batch_size must be at least 1, got 0",
    "'good', 'svm', 'x', 'label', step => 'decay', l2 => 1000": "l2 must be 0 or more, and below 1 / learning_rate",
    "'good', 'svm', 'x', 'label', \"order\" => 'sorted'": 'got "sorted"',
    "'good', 'svm', 'x', 'label', \"order\" => 'corgipile', balance => true": "balance needs order riffle",
    "'good', 'svm', 'x', 'label', \"order\" => 'corgipile', balance => 'content'": "balance needs order riffle",
    "'good', 'svm', 'x', 'label', balance => 'features'": "true, false or 'content', got \"features\"",
    "'good', 'svm', 'x', 'label', balance => 1": "balance must be true, false or 'content', got integer",
    "'good', 'svm', 'x', 'label', block_size => '0'": "block_size must be positive",
    "'good', 'svm', 'x', 'label', buffer_size => 'much'": "invalid size",
    "'good', 'svm', 'x', 'label', buffer_size => '100'": "the buffer holds 4 rows",
    "'good', 'svm', 'x', 'label', classes => '{1}'": "classes has 1 value; a svm model needs at least two",
    "'good', 'svm', 'x', 'label', classes => '{}'": "classes has 0 values; a svm",
    "'good', 'logistic', 'x', 'label', classes => '{1, 2, 3}'": "classes has the values 1, 2, 3...; a logistic",
    "'good', 'svm', 'x', 'label', name => ''": "name must have at least one character",
    "'good', 'svm', 'x', 'label', classes => '{1, NaN}'": "classes must be finite numbers",
    "'good', 'svm', 'x', 'label', classes => '{1, 2}'": "has label 0, which is none of the classes",
    "'good', 'svm', 'x', 'label', speed => 1": "does not exist",
    "'nothing', 'svm', 'x', 'label'": "has no training rows",
    "'absent', 'svm', 'x', 'label'": "does not exist",
    "'corgipile.models_pkey', 'svm', 'x', 'label'": "is an index",
    "0::regclass, 'svm', 'x', 'label'": "could not open relation",
    "'good', 'linear', 'x', 'three', learning_rate => 1e10": "diverged",
}


def in_python(name, value):
    """Return what Python says of a setting that is out of range."""
    with pytest.raises(BadArgument) as refused:
        declared(TrainSettings)[name].checked(value, name)
    return str(refused.value).removesuffix(".0")


REFUSED |= {
    f"'good', 'svm', 'x', 'label', {name} => {value}": in_python(name, value)
    for name, value in {"learning_rate": -1, "decay": 1.5, "tolerance": -1}.items()
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_bad_arguments(fails, arguments):
    assert REFUSED[arguments] in fails(f"SELECT * FROM corgipile.train({arguments})")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT corgipile.train('good', 'svm', 'x', 'label')",
        "SELECT * FROM generate_series(1, 2) s, corgipile.train('good', 'svm', 'x', 'label', seed => s)",
        "SELECT * FROM corgipile.train('good', 'svm', 'x', 'label') WITH ORDINALITY",
    ],
)
def test_calls_that_cannot_be_planned(fails, query):
    assert "Write SELECT * FROM corgipile.train(...)" in fails(query)


PARTED = """FOREIGN DATA WRAPPER far; CREATE SERVER far FOREIGN DATA WRAPPER far;
    CREATE TABLE other (LIKE good) PARTITION BY LIST (label);
    CREATE FOREIGN TABLE part PARTITION OF other DEFAULT SERVER far"""


@pytest.mark.parametrize(
    ("made", "said", "hint"),
    [
        ("VIEW other AS SELECT * FROM good", "is a view; a table or materialized view is needed", True),
        ("TABLE other (LIKE good) PARTITION BY LIST (label)", "has no training rows", False),
        ("SEQUENCE other", "is a sequence", False),
        ("MATERIALIZED VIEW other AS TABLE good WITH NO DATA", "has not been populated", False),
        (
            PARTED,
            '"part" is a foreign table; a table or materialized view is needed',
            True,
        ),
    ],
)
def test_relations_that_do_not_serve(fails, made, said, hint):
    message = fails(f"BEGIN; CREATE {made}; SELECT * FROM corgipile.train('other', 'svm', 'x', 'label')")
    assert said in message
    assert ("query => 'SELECT * FROM public.other'" in message) == hint


def test_values_inside_others_are_hinted_at(fails):
    made = (
        "BEGIN; CREATE TABLE inside AS SELECT jsonb_build_object('a', i) AS j, '{}'::json AS k, i % 2 AS label, i FROM "
    )
    for arguments, said in (
        ("'j', 'label'", 'feature column "j" is jsonb'),
        ("'k', 'label'", 'feature column "k" is json;'),
        ("'i', 'j'", 'label column "j" is jsonb'),
        ("NULL, 'label', text => 'j'", 'text column "j" is jsonb; text is needed'),
    ):
        message = fails(f"{made}generate_series(1, 9) i; SELECT * FROM corgipile.train('inside', 'svm', {arguments})")
        assert said in message
        assert "->> 'key')::float8) STORED" in message
    spaced = made.replace(" AS j", ' AS "a J"') + "generate_series(1, 9) i"
    assert '"a J_key" float8 GENERATED ALWAYS AS (("a J" ->>' in fails(
        f"{spaced}; SELECT * FROM corgipile.train('inside', 'svm', 'a J', 'label')"
    )
    for name in ("j", "t", "l"):
        message = fails(
            f"{made}generate_series(1, 9) i; ALTER TABLE inside ADD t text, ADD l int[]; "
            f"SELECT * FROM corgipile.train('inside', 'svm', 'i', 'label', weight => '{name}')"
        )
        assert f'weight column "{name}" is ' in message
        assert "; a number or boolean is needed" in message
    assert "text must be names of columns, got integer" in fails(
        "SELECT * FROM corgipile.train('good', 'svm', 'x', 'label', text => 3)"
    )


@pytest.mark.parametrize("made", ["TEMP TABLE", "UNLOGGED TABLE", "MATERIALIZED VIEW"])
def test_relations_that_serve(server, made):
    call = "SELECT sum(rows) FROM corgipile.train('other', 'svm', 'x', 'label')"
    assert server.text(f"BEGIN; CREATE {made} other AS SELECT * FROM good; {call}; ROLLBACK") == "500\n"


def test_privileges(server, train, fails):
    call = "SELECT sum(rows) FROM corgipile.train('{}', 'svm', '{}', 'label')"
    assert "permission denied for table hidden" in fails(call.format("hidden", "x"), "stranger")
    assert "permission denied for table hidden" in fails("EXPLAIN " + call.format("hidden", "x"), "stranger")
    assert server.value(call.format("half", "x"), "stranger") == 500
    assert "permission denied for table half" in fails(call.format("half", "three"), "stranger")
    server.sql("GRANT SELECT ON hidden TO stranger; ALTER TABLE hidden ENABLE ROW LEVEL SECURITY")
    assert "row-level security applies to you" in fails(call.format("hidden", "x"), "stranger")
    assert len(train("hidden")) == 2


def test_a_model_is_its_owners(server, train, fails):
    train("good", name="mine")
    train("half", name="theirs", user="stranger")
    assert server.value("SELECT owner FROM corgipile.models WHERE name = 'theirs'") == "stranger"
    call = "SELECT * FROM corgipile.train('half', 'svm', 'x', 'label', name => 'mine')"
    said = fails(call, "stranger")
    assert 'model "mine" belongs to postgres; choose another name' in said
    assert "epoch" not in said
    assert "epoch" in server.said("SET ROLE postgres;" + call.replace("half", "good"))[1]
    server.sql("DELETE FROM corgipile.models", "stranger")
    assert server.rows("SELECT name FROM corgipile.models WHERE name IN ('mine', 'theirs')") == [{"name": "mine"}]


def test_one_row_and_few_rows(server, train):
    server.sql("CREATE TABLE few (x float8[], label bool); INSERT INTO few VALUES ('{1, 2}', true)")
    assert train("few", model="linear")[0]["rows"] == 1
    server.sql("INSERT INTO few VALUES ('{-1, -2}', false), ('{2, 3}', true)")
    for order in ("riffle", "corgipile", "block_only", "no_shuffle"):
        assert [epoch["rows"] for epoch in train("few", order=order, epochs=4)] == [3] * 4
    server.sql("DELETE FROM few")
    server.sql("INSERT INTO few SELECT ARRAY[i, 1], i > 5 FROM generate_series(1, 10) i")
    assert train("few")[0]["rows"] == 10


def test_toasted_rows(server, train):
    server.sql("""
        CREATE TABLE wide AS SELECT ARRAY(SELECT random() - 0.5 + i % 2 FROM generate_series(1, 1500)) AS x,
            i % 2 AS label FROM generate_series(1, 300) i;
        CREATE TABLE packed AS SELECT array_fill((i % 2)::int, ARRAY[3000]) AS x, i % 2 AS label
            FROM generate_series(1, 300) i;
    """)
    for table in ("wide", "packed"):
        last = train(table, block_size="32kB", epochs=3, learning_rate=0.001)[-1]
        assert (last["rows"], last["accuracy"] > 0.9) == (300, True)
    plan = server.text("EXPLAIN SELECT * FROM corgipile.train('wide', 'svm', 'x', 'label', block_size => '32kB')")
    assert "Block Pages: 1\n" in plan


def test_added_columns_have_their_default(server, train):
    server.sql("CREATE TABLE old AS SELECT i % 2 AS a FROM generate_series(1, 50) i")
    server.sql("ALTER TABLE old ADD b numeric DEFAULT 2.5, ADD label bigint DEFAULT 3")
    server.sql("INSERT INTO old SELECT i % 2, i, 4 FROM generate_series(1, 50) i")
    assert train("old", features=["a", "b"], name="old")[1]["rows"] == 100
    assert server.value("SELECT classes FROM corgipile.models WHERE name = 'old'") == [3, 4]


def test_counts_are_not_negative(server, fails):
    server.sql("CREATE TABLE counts AS SELECT ARRAY[i % 5]::real[] AS x, i % 3 - (i = 77)::int * 9 AS label "
               "FROM generate_series(1, 100) i")  # fmt: skip
    message = fails("SELECT * FROM corgipile.train('counts', 'poisson', 'x', 'label')")
    assert re.search(r"row \(0,77\) has label -\d; a poisson model takes labels of 0 or more", message)
    server.sql("DELETE FROM counts WHERE label < 0")
    assert server.value("SELECT count(*) FROM corgipile.train('counts', 'poisson', 'x', 'label')") == 5


def test_a_label_is_no_array(server, fails):
    server.sql(
        "CREATE TABLE labelled_lists AS SELECT i::real AS a, ARRAY['x', 'y'] AS tags FROM generate_series(1, 9) i"
    )
    message = fails("SELECT * FROM corgipile.train('labelled_lists', 'logistic', 'a', 'tags')")
    assert 'label column "tags" is text[]; a number, boolean or text is needed' in message
    server.sql("DROP TABLE labelled_lists")
