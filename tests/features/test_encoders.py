"""Exact values of encoders, for every Arrow type of a column."""

import datetime as dt
import decimal
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgipile.errors import BadArgument, BadLabel, BadSchema, BadValue
from corgipile.features import Encoding, fit_encoding
from corgipile.features.encoders import Categories, Classes, Number, encoder_of
from corgipile.tables import open as open_table

NOON = dt.datetime(1970, 1, 2, 12)  # noqa: DTZ001 - of no zone


def row(place):
    return f"row {place}"


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([1, -2], pa.int8()), [1, -2]),
        (pa.array([True, False]), [1, 0]),
        (pa.array([decimal.Decimal("1.25"), None]), [1.25, None]),
        (pa.array([dt.date(1970, 1, 3), dt.date(1969, 12, 31)]), [2, -1]),
        (pa.array([NOON], pa.timestamp("us")), [1.5]),
        (pa.array([NOON], pa.timestamp("ns", "Europe/Rome")), [1.5]),
        (pa.array([86_400_000], pa.date64()), [1]),
        (pa.array([dt.timedelta(minutes=1)], pa.duration("ms")), [60]),
        (pa.array([dt.time(0, 1)], pa.time32("s")), [60]),
        (pa.array([dt.time(0, 1)], pa.time64("us")), [60]),
        (pa.array([7, 8, 7]).dictionary_encode(), [7, 8, 7]),
    ],
)
def test_numbers_of_any_type(column, wanted):
    one = Number("x")
    made = one.encode(column, row)
    assert made.cast(pa.float64()).to_pylist() == wanted
    assert made.type == one.type_of(column.type)


@given(st.lists(st.none() | st.floats(width=32) | st.just(float("nan"))))
def test_what_is_missing_is_filled(values):
    made = Number("x", 3.0).encode(pa.array(values, pa.float32()), row).to_pylist()
    assert made == [3.0 if value is None or math.isnan(value) else value for value in values]


@given(st.lists(st.sampled_from(["a", "b", "", "ü", None, "c"])))
def test_categories_stand_for_themselves(values):
    known = ("", "a", "b", None)
    column = pa.array(values, pa.string())
    for stored in (column, column.dictionary_encode(), column.cast(pa.large_string())):
        onehot = Categories("k", "onehot", known).encode(stored, row).to_pylist()
        assert onehot == [[float(value == one) for one in known] for value in values]
        ordinal = Categories("k", "ordinal", known).encode(stored, row).to_pylist()
        assert ordinal == [known.index(value) if value in known else -1 for value in values]
        hashed = Categories("k", "hash", (None,), 5).encode(stored, row).to_pylist()
        assert all(sum(one) == 1 for one in hashed)
        assert len({(value, tuple(one)) for value, one in zip(values, hashed, strict=True)}) == len(set(values))


def test_dummies_leave_out_the_first_category():
    rows = open_table(pa.table({"k": ["b", "a", None, "c"], "y": [0, 1, 0, 1]}))
    (encoder,) = fit_encoding(rows, ["k"], "y", encode="dummy", missing="mean").features
    assert encoder.encode(pa.array(["a", "b", None, "new"]), row).to_pylist() == [
        [0, 0, 0],
        [1, 0, 0],
        [0, 0, 1],
        [0, 0, 0],
    ]
    assert encoder.names == ["k=b", "k=c", "k missing"]


def test_hashes_are_the_same_everywhere():
    made = Categories("city", "hash", (), 8).encode(pa.array(["Rome", "Oslo", "Bern"]), row).to_pylist()
    assert [one.index(1.0) for one in made] == [0, 1, 7]


def test_errors_name_row_column_and_what_helps():
    with pytest.raises(BadValue, match="row 1 of column 'k' is null; replace it with missing="):
        Categories("k", "onehot", ("a",)).encode(pa.array(["a", None]), row)
    with pytest.raises(BadLabel, match="row 1 has label 'z'; the classes are 'a', 'b'"):
        Classes("y", ("a", "b")).encode(pa.array(["a", "z"]), row)
    with pytest.raises(BadSchema, match=r"column 'x' is list<item: int64>; numbers, dates or times are needed"):
        Number("x").type_of(pa.list_(pa.int64()))
    with pytest.raises(ValueError, match=r"fill of column .x. must be finite, got inf"):
        encoder_of({"how": "number", "column": "x", "fill": float("inf")})
    with pytest.raises(BadArgument, match="got 9"):
        Encoding.of({"version": 9})
    with pytest.raises(BadArgument, match="not the state of an encoding"):
        Encoding.of({"version": 1, "features": [{"how": "magic", "column": "x"}], "label": None})


def people(rows=50):
    pick = np.random.default_rng(1)
    ages = pick.integers(18, 90, rows).astype(float)
    return pa.table(
        {
            "age": pa.array(ages, mask=pick.random(rows) < 0.2),
            "size": pa.DictionaryArray.from_arrays(pick.integers(0, 3, rows), ["S", "M", "L"], ordered=True),
            "city": pa.array(pick.choice(["Rome", "Oslo"], rows)),
            "y": pa.array(pick.choice(["no", "yes"], rows)),
        }
    )


def test_an_encoding_survives_json_and_serves_other_tables():
    rows = open_table(people())
    found = fit_encoding(rows, None, "y", encode={"size": "ordinal", "city": "onehot"}, missing="mean")
    again = Encoding.of(json.loads(json.dumps(found.state())))
    assert again == found
    assert found.names == ["age", "size", "city=Oslo", "city=Rome"]
    assert found.features[0].fill == pytest.approx(np.nanmean(people()["age"].to_numpy()))
    assert found.features[1].values == ("S", "M", "L")  # in the order of the dictionary, not of the text
    others = people(70).select(["y", "city", "size", "age"])
    made = again.table(open_table(others)).take(np.array([3, 0]), ["size", "y"]).to_pydict()
    assert made["size"] == [["S", "M", "L"].index(others["size"][at].as_py()) for at in (3, 0)]
    assert made["y"] == [["no", "yes"].index(others["y"][at].as_py()) for at in (3, 0)]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"features": ["city"]}, BadSchema, "choose how it becomes numbers"),
        (
            {"features": ["age"], "encode": {"city": "onehot"}},
            BadArgument,
            "encode must name features, age, got 'city'",
        ),
        ({"encode": "binary"}, BadArgument, "encode must be onehot"),
        ({"encode": "onehot:3"}, BadArgument, "encode must be onehot"),
        ({"encode": 3}, BadArgument, "encode must be one of"),
        ({"missing": "median"}, BadArgument, 'missing must be "error"'),
        ({"missing": "skip"}, BadArgument, r"to leave such rows out use .* table\.filter\(.*\)$"),
        ({"missing": float("nan")}, BadArgument, "finite number"),
        ({"missing": True}, BadArgument, "finite number"),
        ({"features": ["age", "y"]}, BadArgument, "is among the features; leave it out"),
        ({"classes": ["yes", "yes"]}, BadLabel, "must be distinct"),
        ({"numbers": True}, BadSchema, "regression needs numbers"),
    ],
)
def test_arguments_that_do_not_fit(arguments, error, text):
    with pytest.raises(error, match=text):
        fit_encoding(open_table(people()), **{"features": None, "label": "y", **arguments})


def test_too_many_categories_say_what_helps():
    rows = pa.table({"id": [f"u{i}" for i in range(1200)], "y": [0, 1] * 600})
    with pytest.raises(BadArgument, match=r"more than 1000 different values.*'hash:1024'"):
        fit_encoding(open_table(rows), ["id"], "y", encode="onehot")


@pytest.mark.parametrize(
    "same",
    [
        [
            pa.array([0, 86400], pa.timestamp("s")),
            pa.array([0, 1], pa.date32()),
            pa.array([0, 864 * 10**11], pa.timestamp("ns", "UTC")),
        ],
        [pa.array([1, 10**16]), pa.array([1.0, 1e16]), pa.array([decimal.Decimal("1.0"), decimal.Decimal(10**16)])],
        [pa.array([True, False]), pa.array([1, 0], pa.int8()), pa.array([1.0, -0.0])],
        [pa.array(["a", "b"]), pa.array(["a", "b"], pa.large_string()), pa.array(["a", "b"]).dictionary_encode()],
    ],
)
def test_equal_values_are_one_category_whatever_their_type(same):
    first = open_table(pa.table({"k": same[0], "y": [0, 1]}))
    found = fit_encoding(first, ["k"], "y", encode={"k": "onehot"})
    wanted = found.table(first).read(0, 2)["k"].to_pylist()
    assert sorted(map(sum, wanted)) == [1, 1]
    for other in same[1:]:
        assert found.table(open_table(pa.table({"k": other, "y": [0, 1]}))).read(0, 2)["k"].to_pylist() == wanted


def test_values_of_another_family_are_refused():
    found = fit_encoding(open_table(people()), ["city"], "y", encode="onehot")
    for other in ([3] * 50, [[1.0]] * 50, [NOON] * 50):
        strange = people().set_column(2, "city", pa.array(other))
        with pytest.raises(BadSchema, match="its categories are texts"):
            found.table(open_table(strange))


def test_ordinals_of_numbers_ascend():
    rows = open_table(pa.table({"k": [2, 10, 1], "y": [0, 1, 0]}))
    found = fit_encoding(rows, ["k"], "y", encode={"k": "ordinal"})
    assert found.table(rows).read(0, 3)["k"].to_pylist() == [1, 2, 0]


def test_text_alone_numbers_in_dictionaries_and_functions():
    rows = pa.table({"a": ["u", "v"], "n": pa.array([5, 6]).dictionary_encode(), "y": [0, 1]})
    assert fit_encoding(open_table(rows.select(["a", "y"])), None, "y", encode="onehot").names == ["a=u", "a=v"]
    assert fit_encoding(open_table(rows), "numeric", "y").names == ["n"]
    assert fit_encoding(open_table(rows), lambda schema: "n", "y").names == ["n"]
    with pytest.raises(BadArgument, match="features must be"):
        fit_encoding(open_table(rows), lambda schema: None, "y")


@pytest.mark.parametrize("classes", [2, "ab", [[0], [1]], []])
def test_classes_that_are_no_list(classes):
    with pytest.raises(BadArgument, match="classes must be a list"):
        fit_encoding(open_table(people()), ["age"], "y", classes=classes)


def test_classes_of_numbers_are_compared_as_numbers():
    rows = open_table(pa.table({"x": [1.0, 2.0], "y": pa.array([0, 1], pa.int8())}))
    found = fit_encoding(rows, ["x"], "y", classes=np.array([0, 1, 300]))
    assert found.table(rows).read(0, 2)["y"].to_pylist() == [0, 1]
    assert json.loads(json.dumps(found.state())) == found.state()
    with pytest.raises(BadLabel, match="row 0 has label 0"):
        fit_encoding(rows, ["x"], "y", classes=[0.5, 1.0]).table(rows).read(0, 2)


@pytest.mark.parametrize("broken", [{"way": "zz"}, {"way": "hash", "buckets": 0}, {"column": 3}])
def test_damaged_states_of_encoders(broken):
    with pytest.raises(ValueError, match="its encoder of column"):
        encoder_of({"how": "categories", "column": "k", "values": ["a"], **broken})


def test_no_two_features_have_one_name():
    rows = pa.table(
        {"a": ["b=c", "d", None], "a=b": ["c", "e", "c"], "a=d": [1.0, 2.0, 3.0], "a missing": [0.0, 1.0, 0.0]}
    )
    encoding = fit_encoding(open_table(rows), list(rows.column_names), None, encode="onehot", missing=0.0)
    assert encoding.names == ["'a'='b=c'", "'a'='d'", "'a' missing", "'a=b'='c'", "a=b=e", "a=d", "a missing"]
