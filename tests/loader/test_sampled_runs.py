"""Content vectors cached with a table: made once, and used as long as the table is unchanged."""

import itertools
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.loader import sampled_runs
from corgipile.loader.content import Content
from corgipile.orders import Riffle
from corgipile.tables.io import index_cache
from corgipile.tables.table import even_cuts

ROWS = 3000
CUTS = np.arange(0, ROWS + 1, 50)
BESIDE = "rows.arrow.sketch.corgipile-index.arrow"


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.normal(size=(ROWS, 3)), axis=0)
    columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 3), "label": rng.integers(0, 2, ROWS)}
    return pa.table({**columns, "text": [str(at % 7) for at in range(ROWS)]})


def write(path, table):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=500)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(index_cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    write(tmp_path / "rows.arrow", rows())
    return tmp_path / "rows.arrow"


@pytest.fixture
def made(monkeypatch):
    """Count how often rows were sampled."""
    count, whole = [], sampled_runs.SampledRuns.make_vectors

    def described(self, *arguments):
        count.append(self.table)
        return whole(self, *arguments)

    monkeypatch.setattr(sampled_runs.SampledRuns, "make_vectors", described)
    return count


def vectors(source, columns=("x", "label"), label="label", cuts=CUTS, **more):
    return Content(tuple(columns), label, **more)(cp.open(source), cuts, "content")


def test_the_next_run_begins_with_what_was_kept(file, made):
    first = vectors(file)
    assert (file.parent / BESIDE).exists()
    assert (first == vectors(rows())).all()  # equal to those of rows in memory, which are not cached
    made.clear()
    assert (vectors(file) == first).all()
    assert vectors(file, cuts=np.array([0, 7, ROWS])).shape == (2, 13)  # blocks of any size
    assert made == []
    assert {path.name for path in file.parent.iterdir()} == {"rows.arrow", BESIDE}


def test_another_state_of_the_table_or_other_columns_are_looked_at_anew(file, made):
    vectors(file)
    for columns, label in ((("x",), "none"), (("x", "label"), "none"), (("label",), "label")):
        made.clear()
        expected = vectors(rows(), columns, label)
        assert (vectors(file, columns, label) == expected).all()
        assert len(made) == 2
    write(file, rows(seed=1))
    assert (vectors(file) == vectors(rows(seed=1))).all()


@pytest.mark.parametrize("at", [0, 0.3, 0.6, 0.9, 1])
def test_a_damaged_index_is_made_anew(file, made, at):
    first, beside = vectors(file), file.parent / BESIDE
    data = bytearray(beside.read_bytes())
    data[int(at * (len(data) - 1))] ^= 0x55
    for damaged in (bytes(data), bytes(data[: int(at * len(data))])):
        beside.write_bytes(damaged)
        assert (vectors(file) == first).all()
    made.clear()
    assert (vectors(file) == first).all()
    assert made == []


@pytest.mark.parametrize("code", [13, 30, 28])
def test_a_folder_that_cannot_be_written_is_passed_over(file, made, monkeypatch, code):
    def refused(*_, **__):
        raise OSError(code, "no")

    monkeypatch.setattr(index_cache, "replacing", refused)
    first = vectors(file)
    assert (vectors(file) == first).all()
    assert len(made) == 2
    assert {path.name for path in file.parent.iterdir()} == {"rows.arrow"}


def test_a_disk_that_is_full_is_found_out_after_one_look(file, made, monkeypatch, caplog):
    build = index_cache._build

    def full(sink, *given):
        build(sink, *given)
        if hasattr(sink, "name"):  # not in memory
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(index_cache, "_build", full)
    with caplog.at_level("INFO", logger="corgipile"):
        first = vectors(file)
    assert len(made) == 1
    assert {path.name for path in file.parent.iterdir()} == {"rows.arrow"}
    assert "could not be cached in" in caplog.text
    monkeypatch.undo()
    caplog.clear()
    with caplog.at_level("INFO", logger="corgipile"):
        assert (vectors(file) == first).all()
    assert "are cached in" in caplog.text


def test_tables_of_several_files_are_kept_on_this_machine(file, made, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    for part in range(3):
        write(parts / f"{part}.arrow", rows().slice(part * 1000, 1000))
    first = vectors(parts)
    assert (first == vectors(rows())).all()
    made.clear()
    assert (vectors(parts) == first).all()
    assert made == []
    assert len(list(parts.iterdir())) == 3
    assert len(list((tmp_path / "cache" / "indexes").iterdir())) == 1


def test_what_is_kept_is_no_part_of_a_folder(file, tmp_path):
    vectors(file)
    assert len(cp.open(tmp_path)) == len(cp.open(f"{tmp_path}/*.arrow")) == ROWS


def test_what_a_function_makes_is_not_kept(file):
    vectors(file, embed=lambda batch: np.arange(batch.num_rows))
    assert not (file.parent / BESIDE).exists()


@pytest.mark.parametrize("memory", ["100KB", "1MB"])
def test_encoded_tables_have_the_same_vectors_whether_they_are_unpacked_or_not(file, tmp_path, memory, made):
    path = tmp_path / "rows.parquet"
    pq.write_table(rows(), path, row_group_size=1500)
    with cp.Loader(path, batch_size=10, order=Riffle(balance="content"), columns=["x", "label"], memory=memory) as one:
        blocks = one.feeder.blocks
    cuts = even_cuts(blocks.rows, blocks.even) if blocks.cuts is None else blocks.cuts
    assert (blocks.sketch == vectors(path, cuts=cuts)).all()
    assert len(made) == 1


def test_a_loader_goes_on_from_a_state_with_what_was_kept(file, made):
    def loader():
        return cp.Loader(file, batch_size=32, order=Riffle(block=50, buffer=600, balance="content"), seed=2)

    with loader() as one:
        batches = iter(one)
        for _ in range(9):
            next(batches)
        state, rest = one.state_dict(), [batch["x"] for batch in batches]
    made.clear()
    with loader() as other:
        other.load_state_dict(state)
        assert np.array_equal(np.concatenate([batch["x"] for batch in other]), np.concatenate(rest))
    assert made == []


@pytest.mark.parametrize(("read", "room"), [(1, 1), (1, 40_000), (40_000, 1), (3000, 3000), (1 << 30, 1 << 30)])
def test_vectors_are_the_same_however_much_is_read_and_looked_at_at_a_time(file, read, room, monkeypatch):
    names = ["x", "label"]
    some = sampled_runs.SampledRuns.of(cp.open(file), names)._replace(n_runs=100, run_rows=7)
    first = some.make_vectors(made_of, "label")
    monkeypatch.setattr(sampled_runs, "READ_BYTES", read)
    monkeypatch.setattr(sampled_runs, "SAMPLE_BYTES", room)
    assert (some.make_vectors(made_of, "label") == first).all()
    assert len(np.unique(first, axis=0)) > 50


def test_a_function_that_fails_leaves_no_thread(file):
    known = set(threading.enumerate())
    calls = itertools.count()

    def fails(batch):
        if next(calls):
            raise RuntimeError("mine")
        return made_of(batch)

    with pytest.raises(RuntimeError, match="mine") as caught:  # a cached error would keep its frames alive
        sampled_runs.SampledRuns.of(cp.open(file), ["x", "label"]).make_vectors(fails, "label")
    assert set(threading.enumerate()) <= known, caught


def made_of(batch):
    return np.asarray(batch.column("x").flatten()).reshape(-1, 3)
