"""Folders written by Spark, pandas, Polars, Dask and table formats."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, CorgiPileError, MissingFile, ReadFailed, UnknownFormat
from corgipile.tables import open as open_table
from corgipile.tables.sketch import sketch

ROWS = pa.table({"x": pa.array(np.arange(6), pa.float32()), "label": [0, 1] * 3})


def arrow(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(path, rows.schema) as writer:
        writer.write_table(rows)
    return path


def parquet(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    return path


def rows_of(source, **options):
    table = open_table(source, **options)
    return table.read(0, len(table)).to_pylist()


LOGS = {
    "Delta Lake": ("_delta_log/00000000000000000000.json", "open the table, corgipile.open("),
    "Iceberg": ("metadata/00001-7a1c.metadata.json", "open the table, corgipile.open("),
    "Lance": ("_versions/1.manifest", "open the table, corgipile.open("),
    "Hudi": (".hoodie/hoodie.properties", 'format("hudi")'),
    "Paimon": ("snapshot/LATEST", 'format("paimon")'),
    "Spark Structured Streaming": ("_spark_metadata/0", "spark.read.parquet("),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_table_with_a_log_is_refused_however_it_is_reached(tmp_path, name):
    sign, remedy = LOGS[name]
    root = tmp_path / "t"
    (root / sign).parent.mkdir(parents=True)
    (root / sign).write_text("{}")
    one = parquet(root / "part-0.parquet")
    two = parquet(root / "data" / "year=2024" / "part-1.parquet")
    sources = [root, root / "data", two.parent, one, two, [one], [tmp_path / "t", one], f"{root}/*.parquet"]
    sources += [f"{tmp_path}/**/*.parquet", f"{tmp_path}/*/part*", f"{root}/data/year=*"]
    opened = "open the table" in remedy
    for source in sources:
        if opened and source in (root, [root, one]):  # by its reader, which gets an empty log
            with pytest.raises(CorgiPileError, match=str(root)):
                open_table(source)
            continue
        with pytest.raises(UnknownFormat, match=f"table of {name}: its log ") as caught:
            open_table(source)
        assert remedy in str(caught.value)
    with pytest.raises(UnknownFormat, match=f"table of {name}"):
        open_table(root, format="parquet")  # the files of a folder are not named individually
    assert len(open_table(one, format="parquet")) == len(ROWS)  # the user names this file
    for source in ([one, two], f"{root}/**/*.parquet", *([] if opened else [root])):
        with pytest.raises(CorgiPileError, match=f"table of {name}"):
            cp.convert(source, tmp_path / "out.arrow")
        with pytest.raises(CorgiPileError, match=f"table of {name}"):
            cp.train(source, label="label", epochs=1)


def test_partitions_are_columns(tmp_path):
    for city, month, first in [("S%C3%A3o Paulo", "01", 0), ("__HIVE_DEFAULT_PARTITION__", "12", 10)]:
        rows = pa.table({"x": pa.array(range(first, first + 3), pa.int64())})
        parquet(tmp_path / "year=2024" / f"city={city}" / f"month={month}" / "part-0.parquet", rows)
    keys = [{"year": 2024, "city": "São Paulo", "month": 1}, {"year": 2024, "city": None, "month": 12}]
    expected = [{"x": x} | keys[i] for i, first in enumerate((0, 10)) for x in range(first, first + 3)]
    assert rows_of(tmp_path) == rows_of(f"{tmp_path}/**/*.parquet") == expected
    assert rows_of(f"{tmp_path}/year=*") == expected
    assert rows_of(sorted(tmp_path.glob("year=*/*/*/*"))) == expected
    table = open_table(tmp_path)
    theirs = ds.dataset(tmp_path, partitioning="hive").schema
    assert {field.name: field.type for field in table.schema} == {field.name: field.type for field in theirs}
    assert rows_of(tmp_path / "year=2024") == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-5", "007"], pa.int32()),
        (["3000000000", "1"], pa.int64()),
        (["1", "a"], pa.string()),
        (["1.5"], pa.string()),
        (["", "1"], pa.string()),
        (["__HIVE_DEFAULT_PARTITION__"], pa.string()),
        (["__HIVE_DEFAULT_PARTITION__", "4"], pa.int32()),
        (["1_000"], pa.string()),
        (["99999999999999999999999"], pa.string()),
        (["٣"], pa.string()),
    ],
)
def test_types_of_partitions(tmp_path, values, kind):
    for value in values:
        parquet(tmp_path / f"k={value}" / "a.parquet")
    assert open_table(tmp_path).schema.field("k").type == kind


def test_partitions_through_every_read_path(tmp_path, manners, laws):
    root, expected = tmp_path / "t", []
    for label in range(3):
        rows = pa.table({"x": np.arange(50, dtype=np.float32) + label, "n": pa.array(np.arange(50) + 50 * label)})
        arrow(root / f"label={label}" / "a.arrow", rows)
        expected.append(rows.append_column("label", pa.array([label] * 50, pa.int32())))
    table = open_table(root)
    manners(table)
    for seed in range(20):
        laws(table, pa.concat_tables(expected).combine_chunks(), np.random.default_rng(seed))
    assert table.layout(["x"]) is not None
    assert table.layout(["x", "label"]) is None
    assert sketch(table, np.array([0, 50, 100, 150]), "label").round(2).tolist() == [0.5, 1.5, 2.5]
    for order in ("riffle", "balanced", "full"):
        with cp.Loader(table, batch_size=16, order=order) as loader:
            batches = list(loader)
        n, label = (np.concatenate([batch[name] for batch in batches]) for name in ("n", "label"))
        assert sorted(n.tolist()) == list(range(150))
        assert (label == n // 50).all()
    assert cp.train(table, features=["x"], label="label", model="softmax", epochs=2).history[-1]["rows"] == 150
    for i, source in enumerate((root, f"{root}/*/*.arrow", sorted(root.glob("*/*.arrow")))):
        cp.convert(source, tmp_path / f"{i}.arrow")
        assert open_table(tmp_path / f"{i}.arrow").read(0, 150).to_pylist() == table.read(0, 150).to_pylist()
    (root / "label=2").rename(root / "label=7")
    assert open_table(root).fingerprint != table.fingerprint


def test_the_value_of_a_folder_replaces_a_column_of_its_files(tmp_path):
    parquet(tmp_path / "label=7" / "a.parquet")
    parquet(tmp_path / "label=8" / "a.parquet")
    table = open_table(tmp_path)
    assert table.schema.names == ["x", "label"]
    assert table.schema.field("label").type == pa.int32()
    assert [row["label"] for row in rows_of(tmp_path)] == [7] * 6 + [8] * 6
    assert table.take([11, 0], ["label"]).to_pydict() == {"label": [8, 7]}
    assert table.layout(["label"]) is None
    with cp.Loader(table, batch_size=4, order="balanced", memory="1MB") as loader:
        assert sorted(np.concatenate([batch["label"] for batch in loader]).tolist()) == [7] * 6 + [8] * 6


def test_partitions_that_do_not_agree(tmp_path):
    parquet(tmp_path / "year=2024" / "a.parquet")
    parquet(tmp_path / "month=1" / "a.parquet")
    with pytest.raises(BadSchema, match="has no column 'month'"):
        open_table(tmp_path)


def test_files_of_several_formats_are_listed(tmp_path):
    for name in ("a", "b"):
        arrow(tmp_path / f"{name}.arrow")
    parquet(tmp_path / "c.parquet")
    for source in (tmp_path, f"{tmp_path}/*"):
        with pytest.raises(UnknownFormat, match=r"a.arrow and 1 others \(arrow\), c.parquet \(parquet\); .* format="):
            open_table(source)
    assert len(open_table(tmp_path, format="parquet")) == 6
    assert len(open_table(f"{tmp_path}/*.arrow")) == 12
    assert len(open_table([tmp_path / "a.arrow", tmp_path / "c.parquet"])) == 12


@pytest.mark.parametrize("name", ["b.csv", "b.jsonl", "b.orc", "b.h5", "b.avro.gz", "b.csv.gz", "b.svm.bz2", "00_0"])
def test_rows_that_cannot_be_opened_are_not_left_out(tmp_path, name):
    arrow(tmp_path / "a.arrow")
    if name == "00_0":
        parquet(tmp_path / name)
    else:
        (tmp_path / name).write_text("1,2\n")
    with pytest.raises(UnknownFormat, match=f"{name} \\("):
        open_table(tmp_path)


def test_files_named_without_a_suffix(tmp_path):
    """Hive and Presto use such names for Parquet files."""
    parquet(tmp_path / "000000_0")
    parquet(tmp_path / "A.PARQUET")
    (tmp_path / "LICENSE").write_text("as you like")
    assert len(open_table(tmp_path)) == 12


def test_what_is_no_row_is_passed_over(tmp_path):
    path = parquet(tmp_path / "part-00000-6f.c000.snappy.parquet")
    pq.write_metadata(ROWS.schema, tmp_path / "_metadata")
    pq.write_metadata(ROWS.schema, tmp_path / "_common_metadata")
    for name in (
        "_SUCCESS",
        ".DS_Store",
        ".part-00000.parquet.crc",
        "part-00000.parquet.crc",
        "README.md",
        "_a.parquet",
    ):
        (tmp_path / name).write_bytes(b"no rows")
    parquet(tmp_path / "_temporary" / "0" / "part-1.parquet")
    parquet(tmp_path / ".ipynb_checkpoints" / "a.parquet")
    assert len(open_table(tmp_path)) == len(open_table(f"{tmp_path}/*.parquet")) == 6
    assert len(open_table(f"{tmp_path}/**/*.parquet")) == 6
    (tmp_path / "README.md").unlink()
    assert len(open_table(f"{tmp_path}/*")) == 6
    hidden = tmp_path / "_mine" / path.name
    parquet(hidden)
    assert len(open_table(f"{tmp_path}/_mine/*.parquet")) == len(open_table(hidden)) == 6


def test_other_folders_with_tables_are_no_guess(tmp_path):
    for name in ("train", "test"):
        arrow(tmp_path / name / "a.arrow")
    (tmp_path / "notes").mkdir()
    with pytest.raises(BadArgument, match=r"has tables in subfolders .*, such as .*test/a.arrow.*\*\*/\*.arrow"):
        open_table(tmp_path)
    assert len(open_table(f"{tmp_path}/**/*.arrow")) == 12
    arrow(tmp_path / "b.arrow")
    with pytest.raises(BadArgument, match="has tables in subfolders that are no partitions"):
        open_table(tmp_path)
    assert len(open_table(f"{tmp_path}/*")) == 6


def test_empty_and_broken_folders(tmp_path):
    (tmp_path / "year=2024").mkdir()
    for source in (tmp_path, tmp_path / "year=2024", f"{tmp_path}/year=*"):
        with pytest.raises(MissingFile, match=r"has no file ending in .*\.arrow"):
            open_table(source)
    parquet(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").touch()
    with pytest.raises(UnknownFormat, match=r"b.parquet is empty; the parquet format must begin with b'PAR1'"):
        open_table(tmp_path)
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "b.parquet").symlink_to(tmp_path / "gone.parquet")
    with pytest.raises(MissingFile, match=r"no file at .*b\.parquet"):
        open_table(tmp_path)
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "b.parquet").symlink_to("b.parquet")
    with pytest.raises(ReadFailed) as caught:
        open_table(tmp_path)
    assert caught.value.errno


def test_a_folder_written_by_pyarrow_is_as_it_was(tmp_path):
    rows = ROWS.append_column("city", pa.array(["a/b", "c=d", None, "", "é", "a/b"]))
    pq.write_to_dataset(rows.filter(pa.compute.is_valid(rows["city"])), tmp_path, partition_cols=["city"])
    theirs = ds.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    key = lambda row: row["x"]  # noqa: E731
    assert sorted(rows_of(tmp_path), key=key) == sorted(theirs, key=key)
    again = pickle.loads(pickle.dumps(open_table(tmp_path)))  # noqa: S301
    assert again.read(0, len(again)).to_pylist() == rows_of(tmp_path)
