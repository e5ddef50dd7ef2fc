"""The Arrow writer: equal batches, a note of their lengths, all or nothing."""

import errno
import resource

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile import tables
from corgipile.errors import BadArgument, BadSchema, WriteFailed
from corgipile.tables.formats.arrow.writer import Writer


def rows_of(*sizes):
    total = sum(sizes)
    texts = pa.array([str(i) * (i % 5) for i in range(total)], pa.string())
    whole = pa.record_batch({"label": np.arange(total), "text": texts})
    starts = np.cumsum((0, *sizes))
    return [whole.slice(start, size) for start, size in zip(starts, sizes, strict=False)]


def write(path, batches, **options):
    with Writer(path, batches[0].schema, **options) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.rows


def batch_rows(path):
    with pa.ipc.open_file(path) as file:
        return [file.get_batch(i).num_rows for i in range(file.num_record_batches)]


@settings(deadline=None)  # files are flushed to disk
@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(1, 9))
def test_batches_are_equal_but_the_last(tmp_path_factory, sizes, length):
    path = tmp_path_factory.mktemp("writer") / "a.arrow"
    batches = rows_of(*sizes)
    assert write(path, batches, record_batch=length) == sum(sizes)
    counts = batch_rows(path)
    assert sum(counts) == sum(sizes)
    assert all(count == length for count in counts[:-1])
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert pa.ipc.open_file(path).read_all().to_pylist() == rows
    assert pa.ipc.open_stream(path.read_bytes()[8:]).read_all().to_pylist() == rows


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_tables_read_what_was_written(tmp_path, compression):
    path = tmp_path / "a.arrow"
    write(path, rows_of(700, 300), record_batch="1KB", compression=compression)
    table = tables.open(path)
    assert table.read(0, 1000)["label"].to_pylist() == list(range(1000))
    assert len(batch_rows(path)) > 5


def test_bytes_make_rows(tmp_path):
    wide = pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(4000, np.float32)), 4)})
    write(tmp_path / "a.arrow", [wide], record_batch="1KB")
    assert batch_rows(tmp_path / "a.arrow") == [64] * 15 + [40]


def test_dictionaries_become_values_and_other_metadata_stays(tmp_path):
    schema = pa.schema([("c", pa.dictionary(pa.int8(), pa.string()))], metadata={"a": "b"})
    with Writer(tmp_path / "a.arrow", schema) as writer:
        for values in (["x", "y"], ["z", None]):
            writer.write(pa.record_batch([pa.array(values).dictionary_encode()], names=["c"]))
    written = pa.ipc.open_file(tmp_path / "a.arrow").read_all()
    assert written.to_pydict() == {"c": ["x", "y", "z", None]}
    assert written.schema.metadata == {b"a": b"b"}


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_a_failure_leaves_what_was_there(tmp_path, failure):
    path = tmp_path / "a.arrow"
    path.write_text("old")
    batch = rows_of(10)[0]
    with pytest.raises(failure), Writer(path, batch.schema, record_batch=3, overwrite=True) as writer:  # noqa: PT012 - the point
        writer.write(batch)
        raise failure
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.arrow"]
    assert path.read_text() == "old"


def test_a_full_disk_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.arrow"
    path.write_text("old")
    batch = rows_of(5000)[0]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(WriteFailed, match=r"cannot write .*a\.arrow: File too large") as raised:  # noqa: SIM117
            with Writer(path, batch.schema, record_batch=100, overwrite=True) as writer:
                writer.write(batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.errno == errno.EFBIG
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.arrow"]
    assert path.read_text() == "old"


def test_rows_of_another_schema_are_refused(tmp_path):
    batch = rows_of(3)[0]
    with pytest.raises(BadSchema, match="columns"), Writer(tmp_path / "a", batch.schema) as writer:
        writer.write(batch.select(["label"]))
    with (
        pytest.raises(BadSchema, match=r"'label' must have type .*, got string"),
        Writer(tmp_path / "a", batch.schema) as writer,
    ):
        writer.write(pa.record_batch({"label": ["a"], "text": ["b"]}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"record_batch": 0}, {"record_batch": "lots"}, {"compression": "rar"}])
def test_bad_settings_are_refused(tmp_path, options):
    with pytest.raises(BadArgument):
        Writer(tmp_path / "a.arrow", pa.schema([]), **options)


def test_a_name_of_another_format_is_refused(tmp_path):
    with pytest.raises(BadArgument, match=r"name it \.arrow"):
        Writer(tmp_path / "rows.parquet", pa.schema([("x", pa.int32())]))
