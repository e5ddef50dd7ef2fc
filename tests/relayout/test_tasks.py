"""Tables written by tasks: the rows, and their order, are those that one machine writes."""

import errno
import re

import numpy as np
import pyarrow as pa
import pytest
from engines import Here
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.conversion.tasks import convert
from corgipile.errors import BadArgument, BadSchema, BadValue, BudgetTooSmall, WouldOverwrite, WriteFailed
from corgipile.relayout.tasks import reshuffle

ONE = {
    "arrow": "one.arrow", "parquet": "one.parquet", "mds": "one", "tfrecord": "one.tfrecord", "webdataset": "one.tar"
}  # fmt: skip


def make(rows):
    return pa.table(
        {
            "id": np.arange(rows),
            "features": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3.0 * rows)), 3),
            "text": pa.array(["é" * (at % 5) for at in range(rows)], pa.string()),
            "words": pa.array([["a", "b"][at % 2] for at in range(rows)]).dictionary_encode(),
        }
    )


def rows_of(path, columns=("id", "features", "text", "words")):
    table = cp.open(path)
    return table.read(0, len(table), [*columns]).to_pydict()


@given(st.integers(0, 3000), st.sampled_from(["64KB", "150KB", "1MB"]), st.integers(0, 2**40))
@settings(max_examples=25, deadline=None)
def test_a_shuffle_is_that_of_one_machine(tmp_path_factory, rows, memory, seed):
    folder, source = tmp_path_factory.mktemp("tasks"), make(rows)
    assert reshuffle(Here(), source, folder / "many", memory=memory, seed=seed) == rows
    cp.reshuffle(source, folder / "one.arrow", memory=memory, seed=seed)
    assert rows_of(folder / "many") == rows_of(folder / "one.arrow")
    assert sorted(path.name for path in folder.iterdir()) == ["many", "one.arrow"]
    assert (folder / "many" / "many-00000.arrow").exists()


def test_a_pile_beyond_memory_is_dealt_again(tmp_path):
    """With 64 KB there are 4 piles; 20,000 rows of 60 bytes make piles of five times the memory."""
    source = make(20_000)
    reshuffle(Here(), source, tmp_path / "many", memory="64KB", seed=1)
    cp.reshuffle(source, tmp_path / "one.arrow", memory="64KB", seed=1)
    assert rows_of(tmp_path / "many") == rows_of(tmp_path / "one.arrow")
    assert len(list((tmp_path / "many").iterdir())) == 4


def test_what_is_dealt_at_once_changes_nothing(tmp_path):
    source = make(2000)
    for largest in (50, 3000, 1 << 40):
        reshuffle(Here(largest), source, tmp_path / f"{largest}", memory="64KB", seed=1)
    assert rows_of(tmp_path / "50") == rows_of(tmp_path / "3000") == rows_of(tmp_path / f"{1 << 40}")


@pytest.mark.parametrize("kind", ONE)
def test_every_format_is_what_one_machine_writes(tmp_path, kind):
    rows, codec = 100 if kind == "webdataset" else 1000, "zstd" if kind == "mds" else None
    source, many = make(rows), tmp_path / "many"
    assert convert(Here(), source, many, to=kind, shard_size="2KB", compression=codec) == rows
    numbers = sorted(int(re.search(r"\d+", path.name)[0]) for path in many.iterdir() if path.name != "index.json")
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 10
    cp.convert(source, tmp_path / ONE[kind], to=kind)
    one = cp.open(tmp_path / ONE[kind])
    assert rows_of(many, one.schema.names) == rows_of(one, one.schema.names)


def test_columns_are_shaped_as_by_convert(tmp_path):
    source = pa.table({"a": np.arange(1000.0), "b": np.arange(1000) % 7, "y": np.arange(1000) % 2, "t": ["x"] * 1000})
    asked = {"label": "y", "columns": ["a", "b"], "types": {"b": "int8"}, "pack": True}
    cp.convert(source, tmp_path / "one.arrow", **asked)
    convert(Here(), source, tmp_path / "many-%03d.arrow", shard_size="4KB", **asked)
    many = sorted(tmp_path.glob("many-*.arrow"))
    assert len(many) > 3
    assert rows_of(many, ["features", "label"]) == rows_of(tmp_path / "one.arrow", ["features", "label"])


def test_rows_of_text_and_their_number_in_messages(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,label\n" + "".join(f"{'nine' if at == 777 else at},{at % 2}\n" for at in range(1000)))
    assert convert(Here(), path, tmp_path / "many", shard_size="1KB", header=True) == 1000
    assert rows_of(tmp_path / "many", ["a"])["a"][776:779] == ["776", "nine", "778"]
    source = pa.table({"a": [1.0] * 700 + [0.5] + [1.0] * 300})
    with pytest.raises(BadValue, match=r"column 'a', row 700: 0.5 is not a int8"):
        convert(Here(), source, tmp_path / "others", shard_size="1KB", types={"a": "int8"})
    nulls = pa.table({"a": [1.0] * 700 + [None] + [1.0] * 300})
    with pytest.raises(BadValue, match=r"column 'a', row 700 must have no nulls"):
        convert(Here(), nulls, tmp_path / "others", shard_size="1KB", to="tfrecord")
    assert not (tmp_path / "others").exists()


def test_an_empty_table_has_one_file(tmp_path):
    reshuffle(Here(), make(0), tmp_path / "many")
    convert(Here(), make(0), tmp_path / "rows", to="parquet")
    assert [len(list((tmp_path / name).iterdir())) for name in ("many", "rows")] == [1, 1]
    assert cp.open(tmp_path / "many").schema.names == make(0).schema.names


def test_what_cannot_be_is_said_before_any_task_runs(tmp_path):
    class Never:
        largest = 1 << 40

        def each(self, *_):
            raise AssertionError("a task ran")

        dealt = each

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    source = make(100)
    requests = [
        (BadArgument, "out must name many files", "rows.arrow", {}),
        (BadArgument, "is a URL", "s3://bucket/rows", {}),
        (BadArgument, "got 'gz'", "out", {"compression": "gz"}),
        (BadArgument, "seed must be a whole number", "out", {"seed": 0.5}),
        (BudgetTooSmall, "got 1 KB", "out", {"memory": "1KB"}),
        (WouldOverwrite, "notes.txt lies in the folder", "full", {"overwrite": True}),
    ]
    for error, message, out, options in requests:
        with pytest.raises(error, match=message):
            reshuffle(Never(), source, out if "://" in out else tmp_path / out, **options)
    with pytest.raises(BadSchema, match="MDS cannot hold"):
        convert(Never(), pa.table({"day": pa.array([1], pa.date32())}), tmp_path / "out", to="mds")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_rows_that_tasks_lost_or_wrote_elsewhere_are_an_error(tmp_path):
    class Loses(Here):
        def each(self, write, tasks):
            return super().each(write, tasks)[:-1]

    class Elsewhere(Here):
        def each(self, write, tasks):
            return [one._replace(folder=tmp_path / "no") for one in super().each(write, tasks)]

    class Remote(Here):
        def each(self, write, tasks):
            write.args[0].room.rename(tmp_path / "away")
            try:
                return super().each(write, tasks)
            finally:
                (tmp_path / "away").rmdir()

    lost, unreached = r"tasks wrote \d+ rows of 1000", "which another machine created: name a folder that all reach"
    for engine, message in (
        (Loses(), lost),
        (Elsewhere(), unreached),
        (Remote(), unreached),
    ):
        with pytest.raises(WriteFailed, match=message) as failed:
            convert(engine, make(1000), tmp_path / "out", shard_size="8KB")
        assert failed.value.errno in (errno.EIO, errno.ENOENT)
        assert not list(tmp_path.iterdir())


def test_what_is_there_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    cp.convert(make(1000), tmp_path / "rows.arrow")
    for seed in (1, 2):
        reshuffle(Here(), tmp_path / "rows.arrow", tmp_path / "out", memory="64KB", seed=seed, overwrite=seed == 2)
    with pytest.raises(WouldOverwrite, match="exists, and would be lost"):
        reshuffle(Here(), tmp_path / "rows.arrow", tmp_path / "out")
    with pytest.raises(WouldOverwrite, match="one of the input files"):
        convert(Here(), tmp_path / "out", tmp_path / "out", overwrite=True)
    cp.reshuffle(tmp_path / "rows.arrow", tmp_path / "one.arrow", memory="64KB", seed=2)
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "one.arrow")
