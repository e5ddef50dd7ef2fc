"""Codes of non-numeric values are equal for equal values, in any part and type."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgipile.errors import BadSchema
from corgipile.tables import open as open_table
from corgipile.tables.numbered import MAX_CODES, Numbered, is_numbered
from corgipile.tables.sketch import sketch

WORDS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view()]
WORDS += [pa.dictionary(pa.int8(), kind) for kind in (pa.string(), pa.large_string())]


@pytest.mark.parametrize("kind", WORDS, ids=str)
@given(words=st.lists(st.sampled_from(["", "a", "b", "é", None]), min_size=1), cut=st.integers(0, 20))
def test_words_are_numbered_as_they_come(kind, words, cut):
    column, codes = Numbered("label", kind), list(dict.fromkeys(words))
    whole = (
        pa.array(words).cast(kind.value_type).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(words)
    )
    whole = whole.cast(kind)
    found = [*column.of(whole[:cut]).to_pylist(), *column.of(whole[cut:]).to_pylist()]
    if not pa.types.is_dictionary(kind):
        assert found == [codes.index(word) for word in words]
    assert len({*zip(words, found, strict=True)}) == len(set(words)) == len(set(found))


def test_beyond_the_last_class_all_words_are_one_and_take_no_memory():
    column = Numbered("label", pa.string())
    found = np.concatenate(
        [column.of(pa.array([f"{one}" for one in range(at, at + 500)])).to_numpy() for at in range(0, 3000, 500)]
    )
    assert found.tolist() == [min(one, MAX_CODES - 1) for one in range(3000)]
    assert len(column._known) == MAX_CODES - 1


def test_a_dictionary_of_many_more_values_than_rows_is_numbered_as_its_values_are():
    values = pa.array([f"{one}" for one in range(5000)])
    column = Numbered("label", pa.dictionary(pa.int32(), pa.string()))
    part = pa.DictionaryArray.from_arrays(pa.array([4000, None, 7, 4000], pa.int32()), values)
    assert column.of(part).to_pylist() == [0, 1, 2, 0]
    assert len(column._known) == 3


@pytest.mark.parametrize(
    ("values", "kind", "numbers"),
    [
        ([dt.date(1970, 1, 3), None], pa.date32(), [2, None]),
        ([dt.datetime(1970, 1, 1, 0, 1, tzinfo=dt.UTC)], pa.timestamp("s", "UTC"), [60]),
        ([dt.timedelta(seconds=3)], pa.duration("ms"), [3000]),
        ([dt.time(0, 0, 5)], pa.time32("s"), [5]),
        ([Decimal("1.5"), None], pa.decimal128(4, 1), [1.5, None]),
        ([7, 5, 7], pa.dictionary(pa.int8(), pa.int64()), [7, 5, 7]),
        ([True, None], pa.bool_(), [True, None]),
    ],
)
def test_times_count_what_they_are_stored_in(values, kind, numbers):
    assert Numbered("y", kind).of(pa.array(values, kind)).to_pylist() == numbers


@pytest.mark.parametrize(
    "kind", [pa.null(), pa.list_(pa.int8()), pa.struct({"a": pa.int8()}), pa.month_day_nano_interval()], ids=str
)
def test_what_has_no_number_is_refused(kind):
    assert not is_numbered(kind)
    with pytest.raises(BadSchema, match=r"column 'y' must hold one number, text or time a row, got "):
        Numbered("y", kind)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.integers(1, 50))
def test_blocks_of_words_are_described_as_those_of_their_codes(codes, block):
    first = {code: at for at, code in enumerate(dict.fromkeys(codes))}
    words = open_table(pa.table({"y": [f"class {code}" for code in codes]}))
    numbers = open_table(pa.table({"y": [first[code] for code in codes]}))
    assert sketch(words, words.cuts(block), "y").tolist() == sketch(numbers, numbers.cuts(block), "y").tolist()
