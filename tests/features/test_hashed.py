"""The kernel hashes text, categories and numbers by the rule, for every form of a column."""

import signal

import numpy as np
import pyarrow as pa
import pytest
from hashing import crossed, murmur, row, text_items, text_row, words
from hypothesis import example, given
from hypothesis import strategies as st

from corgipile import _kernel
from corgipile.errors import BadArgument, BadSchema, MissingColumn
from corgipile.features.encoding import Encoding
from corgipile.features.fit_hashed import fit_hashed
from corgipile.features.hashed import PAIR
from corgipile.features.hashing import Hashing, Source
from corgipile.tables import open as open_table
from corgipile.testing import check_table

LETTERS = "aAbB zZ09_'-.,!\t\n éÉßẞÿŸĀāĐœŒİıΣσςΆΩЖжЁёԱա中文かナ한글😀🏽\u200d\u00ad…“”ＡａåÅ\ufeff\ufffd"
texts = st.text(st.one_of(st.sampled_from(LETTERS), st.characters(codec="utf-8")), max_size=30)
broken = st.lists(st.one_of(texts.map(str.encode), st.binary(max_size=6)), max_size=5).map(b"".join)


def hashed(columns, **how):
    """Return each row of a table as a dictionary of values by place."""
    table = open_table(pa.table(columns))
    made = fit_hashed(table, how.pop("features", None), None, **how).table(table).read(0, len(table), PAIR)
    return [
        dict(zip(*pair, strict=True)) for pair in zip(*(column.to_pylist() for column in made.columns), strict=True)
    ]


@given(st.lists(broken, min_size=1, max_size=4), st.integers(1, 4), st.sampled_from([1, 4, 18, 30]))
@example(["Σίσυφος ΣΊΣΥΦΟΣ".encode()], 2, 18)
@example([b"\xe9t\xe9 \xf0\x9f\x98", "été中 文".encode()], 3, 18)
@example([b"one " * 40_000 + b"x" * 100_000 + b" two"], 3, 18)
def test_words_are_hashed_by_the_rule(rows, ngrams, bits):
    found = hashed({"t": pa.array(rows, pa.binary())}, text="t", ngrams=ngrams, hash_bits=bits)
    assert found == [text_row(data, ngrams, bits) for data in rows]


def test_every_character_is_of_a_kind():
    codes = [*range(0x600), *range(0x600, 0xD800, 11), *range(0xE000, 0x30000, 41), *range(0xFE00, 0x10000), 0x10FFFF]
    rows = [f"a{chr(code)}B" for code in codes]
    found = hashed({"t": rows}, text="t", ngrams=1, hash_bits=30)
    for code, one in zip(codes, found, strict=True):
        assert one == text_row(f"a{chr(code)}B".encode(), 1, 30), hex(code)


@pytest.mark.parametrize("ngrams", [1, 2, 3])
def test_places_are_those_of_scikit_learn(ngrams):
    text = pytest.importorskip("sklearn.feature_extraction.text")
    rows = ["The good, the BAD and the ugly", "", "a b a b a", "naïve Café n°" + " word" * 100]
    their = text.HashingVectorizer(n_features=1 << 18, ngram_range=(1, ngrams), token_pattern=r"(?u)\w+", norm=None)
    wanted = their.transform(rows).tocsr()
    wanted.sum_duplicates()
    wanted.eliminate_zeros()
    found = hashed({"t": rows}, text="t", ngrams=ngrams)
    for at, one in enumerate(found):
        mine = wanted[at]
        assert list(one) == mine.indices.tolist()
        found_length, their_length = (sum(map(abs, values)) or 1.0 for values in (one.values(), mine.data.tolist()))
        assert [value / found_length for value in one.values()] == pytest.approx(mine.data / their_length)


@given(st.binary(max_size=40), st.integers(0, 2**32 - 1))
def test_the_hash_is_murmurs(data, seed):
    assert _kernel.murmur(data, seed) == murmur(data, seed)


def test_words_of_documents():
    told = "The naïve CAFÉ's 2 dogs; don't_stop 東京 😀😀 ΟΔΟΣ"
    assert [word.decode() for word in words(told.encode())] == [
        "the", "naïve", "café", "s", "2", "dogs", "don", "t_stop", "東", "京", "😀", "😀", "οδοσ",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)
def test_text_of_any_type_is_alike(kind):
    rows = ["good movie", "", "good movie", "bäd 😀", None]
    plain = pa.array(rows)
    column = plain.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else plain.cast(kind)
    wanted = hashed({"t": plain}, text="t", missing=0)
    assert hashed({"t": column}, text="t", missing=0) == wanted
    assert hashed({"t": pa.chunked_array([column.slice(3), column.slice(0, 3)])}, text="t", missing=0) == [
        *wanted[3:], *wanted[:3],
    ]  # fmt: skip
    assert wanted[1] == wanted[4] == {}


def test_a_null_is_no_number_unless_something_stands_for_it():
    (good, hole) = hashed({"t": ["a", None]}, text="t")
    assert len(good) == 1
    assert list(hole) == [0]
    assert np.isnan(hole[0])
    numbers = {"t": ["a", "b"], "x": [2.0, None]}
    assert [np.isnan([*one.values()]).any() for one in hashed(numbers, text="t", interactions=["x"])] == [False, True]
    filled = hashed(numbers, text="t", interactions=["x"], missing="mean")
    assert filled == hashed(numbers | {"x": [2.0, 2.0]}, text="t", interactions=["x"])


def test_two_columns_of_text_have_words_of_their_own():
    found = hashed({"t": ["same"], "u": ["same"]}, text=["t", "u"])
    assert found == [row([(murmur(b"same", 0), 1.0), (murmur(b"same", 1), 1.0)], 18)]


item = st.fixed_dictionaries(
    {"t": texts, "c": st.sampled_from(["Rome", "Oslo", ""]), "b": st.booleans(), "x": st.integers(-3, 3)}
)


@given(st.lists(item, min_size=1, max_size=4))
def test_crosses_are_products_of_what_columns_say(rows):
    columns = {name: [one[name] for one in rows] for name in ("t", "c", "b", "x")}
    terms = [("c",), ("x",), ("c", "x"), ("x", "b"), ("t", "c"), ("t", "x", "b", "c")]
    found = hashed(columns, text="t", interactions=terms)
    for one, mine in zip(rows, found, strict=True):
        items = {
            "t": text_items(one["t"].encode(), 2),
            "c": [(murmur(one["c"].encode(), murmur(b"c", 0)), 1.0)],
            "b": [(murmur(str(int(one["b"])).encode(), murmur(b"b", 0)), 1.0)],
            "x": [(murmur(b"x", 0), float(one["x"]))] if one["x"] else [],
        }
        wanted = row([pair for term in [("t",), *terms] for pair in crossed([items[name] for name in term])], 18)
        for place in mine.keys() | wanted.keys():
            assert mine.get(place, 0.0) == pytest.approx(wanted.get(place, 0.0), rel=1e-5, abs=1e-5)


def test_numbers_have_places_behind_the_hashed():
    columns = {"t": ["a"], "x": [0.5], "v": pa.array([[1.0, 0.0]], pa.list_(pa.float32(), 2)), "c": ["k"]}
    found = hashed(columns, text="t", features=["x", "v", "c"], encode={"c": "onehot"}, hash_bits=4)
    assert found == [row([(murmur(b"a", 0), 1.0)], 4) | {16: 0.5, 17: 1.0, 19: 1.0}]


def test_a_row_of_ten_megabytes():
    found = hashed({"t": ["a bc " * 2_000_000]}, text="t")
    counts = {"a": 2e6, "bc": 2e6, "a bc": 2e6, "bc a": 2e6 - 1}
    wanted = row([(murmur(word.encode(), 0), count / np.sqrt(8e6 - 1)) for word, count in counts.items()], 18)
    assert found == [pytest.approx(wanted)]


def test_the_table_keeps_the_laws():
    rows = pa.table({"t": [f"word{i} and {i % 7}" for i in range(50)], "x": np.arange(50.0)})
    table = open_table(rows)
    made = fit_hashed(table, ["x"], None, text="t", interactions=[("t", "x")]).table(table)
    check_table(made, pa.Table.from_batches([made.read(0, 50)]))


def test_an_encoding_is_made_again_from_its_state():
    table = open_table(pa.table({"t": ["a"], "c": ["b"], "x": [1.0]}))
    made = fit_hashed(table, ["x"], None, text="t", interactions=[("t", "c"), "c"], hash_bits=9, ngrams=3)
    assert Encoding.of(made.state()) == made
    assert made.columns == ("t", "c", "x")
    for damaged in (
        {"bits": 99},
        {"terms": [["nothing"]]},
        {"sources": [{"column": "t", "kind": "odd"}]},
        {"terms": []},
    ):
        state = made.state()
        state["hashing"] = state["hashing"] | damaged
        with pytest.raises(BadArgument, match="not the state of an encoding"):
            Encoding.of(state)


COLUMNS = {"t": ["a"], "x": [1.0], "v": [[1.0]]}


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"text": "nothing"}, MissingColumn, "no column 'nothing'"),
        ({"text": "x"}, BadSchema, "text column 'x' is double; text is needed"),
        ({"text": ["t", "t"]}, BadArgument, "occurs twice"),
        (
            {"text": "t", "features": ["t"], "encode": "onehot"},
            BadArgument,
            "'t' is in text and in features",
        ),
        ({"text": "t", "encode": "onehot"}, BadArgument, "encode='onehot' has no effect"),
        ({"text": "t", "features": ["v"]}, BadSchema, "lists must have a fixed length"),
        ({"interactions": ["v"]}, BadSchema, "column 'v' of interactions is list"),
        ({"interactions": [("t", "t")]}, BadArgument, "names a column twice"),
        ({"interactions": [("t",) * 5]}, BadArgument, "names a column twice"),
        ({"interactions": [()]}, BadArgument, "names of columns"),
    ],
)
def test_what_is_not_hashed_is_refused(how, error, words):
    with pytest.raises(error, match=words):
        hashed(COLUMNS, **how)


def test_other_tables_must_have_the_same_columns():
    made = fit_hashed(open_table(pa.table({"t": ["a"], "c": ["b"]})), None, None, text="t", interactions=["c"])
    with pytest.raises(BadSchema, match="column 'c' is int64; its categories are texts"):
        made.table(open_table(pa.table({"t": ["a"], "c": [1]})))
    with pytest.raises(MissingColumn, match="no column 'c'"):
        made.table(open_table(pa.table({"t": ["a"]})))
    with pytest.raises(BadArgument, match="rename the column"):
        made.table(open_table(pa.table({"t": ["a"], "c": ["b"], "\x1fhashed_k": [1]})))


def test_the_binding_checks_what_it_is_given():
    text, ends = (_kernel.HASHED_WORDS, 0, b"ab", np.array([0, 2]), None), np.zeros(1, np.int32)
    how = {"bits": 18, "ngrams": 1, "missing": None, "beside": None}
    assert len(_kernel.hash_rows([text], [(0,)], ends, **how)[0]) == 4
    bad = [
        ([(9, 0, b"ab", np.array([0, 2]), None)], [(0,)], {}),
        ([(0, 0, b"ab", np.array([0, 3]), None)], [(0,)], {}),
        ([(0, 0, b"ab", np.array([2, 0]), None)], [(0,)], {}),
        ([(0, 0, b"ab", np.array([0]), None)], [(0,)], {}),
        ([(2, 0, None, None, np.zeros(2))], [(0,)], {}),
        ([text], [(1,)], {}),
        ([text], [()], {}),
        ([text] * 33, [(0,)], {}),
        ([text], [(0,)], {"bits": 31}),
        ([text], [(0,)], {"ngrams": 9}),
        ([text], [(0,)], {"missing": np.zeros(2, np.uint8)}),
    ]
    for columns, terms, other in bad:
        with pytest.raises(ValueError, match=r".+"):
            _kernel.hash_rows(columns, terms, ends, **(how | other))


def test_hashing_is_a_pure_value():
    how = Hashing(18, 2, (Source("t", "words"),), (("t",),))
    assert Hashing.of(how.state()) == how
    assert how.text == how.columns == ("t",)
    assert how.interactions == ()


def test_a_signal_stops_a_row_of_many_products():
    """A product of two long texts would take minutes."""

    def stop(number, frame):
        raise InterruptedError(number)

    words = " ".join(f"w{i}" for i in range(200_000)).encode()
    text = (_kernel.HASHED_WORDS, 0, words, np.array([0, len(words)]), None)
    how = {"bits": 8, "ngrams": 1, "missing": None, "beside": None}
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(InterruptedError):
            _kernel.hash_rows([text, text], [(0, 1)], np.zeros(1, np.int32), **how)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
