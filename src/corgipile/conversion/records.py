"""Compressed TFRecord files, read sequentially."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from corgipile import _kernel
from corgipile.conversion.stream import Stream
from corgipile.conversion.text import decompressed
from corgipile.errors import CorruptFile
from corgipile.tables.formats.tfrecord.example import Examples, Flaw, infer
from corgipile.tables.formats.tfrecord.index import CHUNK, REASONS, Walk
from corgipile.tables.formats.tfrecord.records import Records, pack

_ROWS = 4096


def record_stream(path: str) -> Stream:
    """Open records as columns: Examples decoded by the schema of the first few thousand records, others as bytes."""
    runs = _runs(path)
    first = next(runs, (0, Records(np.zeros(0, np.uint8), np.zeros(1, np.int64))))
    samples = first[1].array().to_pylist()
    if not any(map(_kernel.example_features, samples[:1])):
        schema = pa.schema([("record", pa.binary())])
        batches = (pa.RecordBatch.from_arrays([records.array()], schema=schema) for _, records in chain([first], runs))
        return Stream(schema, batches, paths=(path,))
    schema = infer(samples, None)
    if isinstance(schema, Flaw):
        raise _error(path, 0, schema)
    return Stream(schema, _decoded(path, Examples(schema), chain([first], runs)), paths=(path,))


def _decoded(path: str, examples: Examples, runs: Iterator[tuple[int, Records]]) -> Iterator[pa.RecordBatch]:
    for start, records in runs:
        batch = examples.decode(records, examples.schema.names)
        if isinstance(batch, Flaw):
            raise _error(path, start, batch)
        yield batch


def _error(path: str, start: int, flaw: Flaw) -> Exception:
    return flaw.error(f"{path}, record {start + flaw.row}: {flaw.reason}")


def _runs(path: str) -> Iterator[tuple[int, Records]]:
    """Yield runs of records, each with its first record's number."""
    starts, sizes = np.empty(_ROWS, np.int64), np.empty(_ROWS, np.int64)
    rest, rows, chunk, ended = b"", 0, CHUNK, False
    with decompressed(path) as file:
        while not ended or rest:
            more = file.read(chunk) if len(rest) < chunk else b""
            ended = ended or (len(rest) < chunk and not more)
            rest += more
            walk = Walk(*_kernel.tfrecord_scan(rest, len(rest) if ended else 1 << 62, 0, starts, sizes))
            if walk.rows:
                yield rows, pack(rest, starts[: walk.rows], sizes[: walk.rows])[0]
            rows += walk.rows
            if walk.code:
                raise CorruptFile(f"{path}, record {rows}: {REASONS[walk.code]}")
            rest = rest[walk.consumed :]
            chunk = CHUNK if walk.consumed else 2 * chunk
