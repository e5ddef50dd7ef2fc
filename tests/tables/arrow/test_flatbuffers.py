import contextlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgipile.errors import CorruptFile
from corgipile.tables.formats.arrow.flatbuffers import FlatBuffer, read_batch


def metadata_of(rows):
    message = pa.ipc.read_message(rows.serialize())
    data = message.metadata.to_pybytes()
    return b"\xff\xff\xff\xff" + len(data).to_bytes(4, "little") + data, message.body.size


def test_reads_what_pyarrow_writes(rows_of):
    rows = pa.record_batch({"x": pa.array([1, None, 3]), "y": pa.array([[1], [], [2, 3]])})
    batch = read_batch(*metadata_of(rows))
    assert batch.rows == 3
    assert batch.nodes.tolist() == [[3, 1], [3, 0], [3, 0]]
    assert len(batch.buffers) == 2 + 2 + 2
    assert not batch.compressed


def test_other_messages_and_short_bodies_are_refused():
    rows = pa.record_batch({"x": [1, 2, 3]})
    data, body = metadata_of(rows)
    with pytest.raises(CorruptFile, match=f"a buffer lies outside its record batch of {body - 8} bytes"):
        read_batch(data, body - 8)
    schema = rows.schema.serialize().to_pybytes()
    with pytest.raises(CorruptFile, match="a message must have type 3 here, got type 1"):
        read_batch(schema, body)


@given(data=st.binary(max_size=80), slot=st.integers(0, 10))
def test_any_bytes_are_read_or_refused(data, slot):
    for read in (
        lambda: read_batch(data, 10),
        lambda: FlatBuffer(data).vector(slot, 16),
        lambda: FlatBuffer(data).table(slot),
    ):
        with contextlib.suppress(CorruptFile):
            read()
