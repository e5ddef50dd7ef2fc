"""What the tests of all tables share: the laws every table obeys, and ways to damage a file."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from corgipile.errors import BadArgument, CorgiPileError, MissingColumn
from corgipile.tables import open as open_table


def check_table(table, expected, rng):
    """Check that a table agrees with the rows it was written from, however it is asked."""
    rows = expected.num_rows
    assert len(table) == rows
    assert table.schema.names == expected.schema.names
    assert table.schema.types == expected.schema.types
    assert table.read(0, rows).to_pylist() == expected.to_pylist()
    start, stop = sorted(rng.integers(0, rows + 1, 2).tolist())
    names = rng.permutation(expected.schema.names)[: rng.integers(1, len(expected.schema) + 1)].tolist()
    batch = table.read(start, stop, names)
    batch.validate(full=True)
    assert batch.schema.names == names
    assert batch.to_pylist() == expected.select(names).slice(start, stop - start).to_pylist()
    wanted = rng.integers(0, rows, rng.integers(0, 20)) if rows else np.zeros(0, np.int64)
    taken = table.take(wanted, names)
    taken.validate(full=True)
    assert taken.to_pylist() == expected.select(names).take(pa.array(wanted)).to_pylist()
    check_cuts(table, int(rng.integers(1, rows + 2)))


def check_cuts(table, rows):
    cuts = table.cuts(rows)
    assert cuts.dtype == np.int64
    assert cuts[0] == 0
    assert cuts[-1] == len(table)
    assert (np.diff(cuts) > 0).all()
    with pytest.raises(BadArgument, match="at least 1, got 0"):
        table.cuts(0)


def check_layout(table, columns):
    """Check a layout by reading the bytes it names."""
    layout = table.layout(columns)
    assert layout is not None
    for name in columns:
        place = layout.columns[name]
        assert place.starts[0] == 0
        assert place.starts[-1] == len(table)
        assert (np.diff(place.starts) > 0).all()
        assert len(place.files) == len(place.offsets) == len(place.starts) - 1
        parts = [
            np.fromfile(
                layout.paths[file],
                place.dtype,
                count=int(stop - start) * int(np.prod(place.shape)),
                offset=int(offset),
            )
            for file, offset, start, stop in zip(
                place.files, place.offsets, place.starts[:-1], place.starts[1:], strict=True
            )
        ]
        array = table.read(0, len(table), [name]).column(0)
        while pa.types.is_fixed_size_list(array.type):
            array = array.flatten()
        assert np.array_equal(np.concatenate(parts), array.to_numpy())
        assert place.width == place.dtype.itemsize * np.prod(place.shape)


def check_manners(table):
    """Check what is the same for every table: pickling, threads, and answers to bad questions."""
    again = pickle.loads(pickle.dumps(table))  # noqa: S301
    assert again.fingerprint == table.fingerprint
    assert again.nbytes == table.nbytes > 0
    whole = table.read(0, len(table)).to_pylist()
    assert again.read(0, len(table)).to_pylist() == whole

    def read(seed):
        rng = np.random.default_rng(seed)
        start, stop = sorted(rng.integers(0, len(table) + 1, 2).tolist())
        rows = rng.integers(0, len(table), 5)
        return table.read(start, stop).to_pylist() == whole[start:stop] and table.take(rows).to_pylist() == [
            whole[row] for row in rows
        ]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(40)))
    with pytest.raises(MissingColumn, match=r"no column 'nothing'; the table has '"):
        table.read(0, 1, ["nothing"])
    with pytest.raises(MissingColumn, match="nothing"):
        table.layout(["nothing"])
    with pytest.raises(BadArgument, match=f"the table has rows 0 to {len(table)}"):
        table.read(0, len(table) + 1)
    with pytest.raises(BadArgument, match=f"row {len(table)} asked for"):
        table.take(np.array([0, len(table)]))
    with pytest.raises(BadArgument, match="row -1 asked for"):
        table.take([-1])
    with pytest.raises(BadArgument, match="list of integers"):
        table.take(np.array([0.5]))


@st.composite
def _damage(draw, data):
    """Draw a damaged copy of some bytes: bytes changed, cut out, doubled, or the end missing."""
    broken = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        last = max(len(broken) - 1, 0)
        # Metadata, where damage is most telling, lies at both ends.
        at = draw(st.integers(0, last) | st.integers(max(last - 800, 0), last) | st.integers(0, min(last, 800)))
        kind = draw(st.sampled_from(["byte", "byte", "byte", "word", "cut", "double", "end"]))
        if kind == "byte":
            broken[at : at + 1] = bytes([draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))])
        elif kind == "word":
            broken[at : at + 4] = draw(st.sampled_from([b"\xff" * 4, b"\xff\xff\xff\x7f", bytes(4), b"\x10\0\0\0"]))
        elif kind == "cut":
            del broken[at : at + draw(st.integers(1, 40))]
        elif kind == "double":
            broken[at:at] = broken[at : at + draw(st.integers(1, 40))]
        else:
            del broken[at:]
    return bytes(broken)


def check_survives(path, data, format, **options):  # noqa: A002
    """Check that a damaged file is read, or refused by an error of ours: nothing else may happen."""
    path.write_bytes(data)
    try:
        table = open_table(path, format=format, **options)
        rows = len(table)
        assert isinstance(table.fingerprint, str)
        table.cuts(7)
        table.layout([name for name in ("features", "label") if name in table.schema.names])
        if rows > 100_000:
            table.read(rows // 2, rows // 2 + 5)
            return
        batch = table.read(0, rows)
        batch.validate(full=True)
        batch.to_pylist()
        if rows:
            table.take(np.array([rows - 1, 0, rows // 2])).to_pylist()
            table.read(rows // 3, rows // 2)
    except CorgiPileError as error:
        refused = str(error)
    else:
        return
    assert str(path) in refused


@pytest.fixture(scope="session")
def laws():
    return check_table


@pytest.fixture(scope="session")
def layout_law():
    return check_layout


@pytest.fixture(scope="session")
def manners():
    return check_manners


@pytest.fixture(scope="session")
def damage():
    return _damage


@pytest.fixture(scope="session")
def survives():
    return check_survives


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


def make_rows(rows, seed=0, nulls=False):
    """Make columns of all sorts of types."""
    rng = np.random.default_rng(seed)

    def holes(values):
        return [None if nulls and rng.random() < 0.2 else value for value in values]

    numbers = rng.standard_normal((rows, 3)).astype(np.float32)
    columns = {
        "features": pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), 3),
        "label": pa.array(rng.integers(0, 3, rows)),
        "small": pa.array(holes(rng.integers(0, 100, rows).tolist()), pa.uint8()),
        "flag": pa.array(holes((rng.random(rows) < 0.5).tolist()), pa.bool_()),
        "text": pa.array(holes(["é" * int(k) for k in rng.integers(0, 5, rows)]), pa.string()),
        "image": pa.array(holes([bytes(int(k)) for k in rng.integers(0, 9, rows)]), pa.large_binary()),
        "features_k": pa.array(holes([list(range(int(k))) for k in rng.integers(0, 6, rows)]), pa.list_(pa.int32())),
        "words": pa.array(
            holes([["a", None, "bc"][: int(k)] for k in rng.integers(0, 4, rows)]), pa.large_list(pa.string())
        ),
        "pair": pa.array(
            holes([{"x": int(k), "y": [float(k), None]} for k in rng.integers(0, 9, rows)]),
            pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64(), 2))]),
        ),
        "map": pa.array(holes([[("k", int(k))] for k in rng.integers(0, 9, rows)]), pa.map_(pa.string(), pa.int64())),
        "when": pa.array(holes(rng.integers(0, 10**6, rows).tolist()), pa.timestamp("us")),
        "fixed": pa.array(holes([b"abc"] * rows), pa.binary(3)),
        "half": pa.array(rng.standard_normal(rows).astype(np.float16)),
        "money": pa.array(holes([None if k == 0 else int(k) for k in rng.integers(0, 9, rows)]), pa.decimal128(12, 2)),
        "nothing here": pa.nulls(rows),
    }
    return pa.table(columns)


@pytest.fixture(scope="session")
def rows_of():
    return make_rows
