"""Tables are identified by content: copies are equal, rewritten files are not."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile.errors import StateMismatch
from corgipile.tables.fingerprints import fingerprint_of, is_fingerprint_of, place_of
from corgipile.tables.io.files import MAX_WHOLE, legacy_fingerprints

ROWS = 40_000


def rows(label):
    x = np.random.default_rng(0).random((ROWS, 28), np.float32)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 28)
    return pa.table(
        {"features": flat, "label": pa.array(label, pa.int8()), "id": pa.array(np.arange(ROWS), pa.int32())}
    )


def arrow(path, table):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


WRITE = {"arrow": arrow, "parquet": lambda path, table: pq.write_table(table, path, compression="none")}
LABELS = np.random.default_rng(1).integers(0, 2, ROWS)


@pytest.mark.parametrize("kind", WRITE)
def test_a_copy_resumes_under_any_name(tmp_path, kind):
    WRITE[kind](tmp_path / f"a.{kind}", rows(LABELS))
    (tmp_path / "there").mkdir()
    shutil.copyfile(tmp_path / f"a.{kind}", tmp_path / "there" / f"b.{kind}")
    first = cp.Loader(tmp_path / f"a.{kind}", memory="1MB", seed=3)
    batches = iter(first)
    begun = [next(batches)["id"] for _ in range(5)]
    second = cp.Loader(tmp_path / "there" / f"b.{kind}", memory="1MB", seed=3)
    second.load_state_dict(first.state_dict())
    seen = np.concatenate(begun + [batch["id"] for batch in second])
    assert np.array_equal(np.sort(seen), np.arange(ROWS))


@pytest.mark.parametrize("kind", WRITE)
def test_other_labels_of_the_same_size_are_another_table(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    WRITE[kind](path, rows(LABELS))
    state, size = cp.Loader(path, memory="1MB").state_dict(), path.stat()
    WRITE[kind](path, rows(LABELS[::-1]))
    assert path.stat().st_size > MAX_WHOLE  # so that the digest samples it
    os.utime(path, ns=(size.st_atime_ns, size.st_mtime_ns))
    with pytest.raises(StateMismatch, match="another table"):
        cp.Loader(path, memory="1MB").load_state_dict(state)


def test_states_of_before_load_while_the_file_is_as_it_was(tmp_path):
    path = tmp_path / "a.arrow"
    arrow(path, rows(LABELS))
    loader = cp.Loader(path, memory="1MB", seed=3)
    with legacy_fingerprints():
        old = {**loader.state_dict(), "table": loader.feeder.table.fingerprint}
    assert old["table"] != loader.state_dict()["table"]
    cp.Loader(path, memory="1MB", seed=3).load_state_dict(old)
    os.utime(path, (1, 1))
    with pytest.raises(StateMismatch, match="another table"):
        cp.Loader(path, memory="1MB", seed=3).load_state_dict(old)


def test_many_files_are_looked_at_less_each(tmp_path):
    for i in range(3):
        arrow(tmp_path / f"{i}.arrow", rows(LABELS))
    several = cp.open(tmp_path)
    assert several.fingerprint == cp.open(tmp_path / "*.arrow").fingerprint
    assert is_fingerprint_of(several.fingerprint, fingerprint_of(several))
    assert not is_fingerprint_of(cp.open(tmp_path / "0.arrow").fingerprint, fingerprint_of(several))
    arrow(tmp_path / "1.arrow", rows(LABELS[::-1]))
    assert cp.open(tmp_path).fingerprint != several.fingerprint


def test_files_are_told_apart_where_content_is_the_same(tmp_path):
    arrow(tmp_path / "a.arrow", rows(LABELS))
    shutil.copyfile(tmp_path / "a.arrow", tmp_path / "b.arrow")
    one, other = (cp.open(tmp_path / name) for name in ("a.arrow", "b.arrow"))
    assert one.fingerprint == other.fingerprint
    assert place_of(one) != place_of(other)
