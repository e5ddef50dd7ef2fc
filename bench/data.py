"""Tables that the benchmarks make for themselves."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from corgipile.convert import convert
from corgipile.datasets import higgs_like
from corgipile.writer import Writer

CHUNK = 1 << 16


def higgs(work: Path, rows: int, features: int) -> Path:
    """Make a label-sorted binary table, Arrow IPC, float32 features."""
    path = work / f"higgs-{rows}x{features}.arrow"
    if not path.exists():
        higgs_like(path, rows, features=features, seed=1)
    return path


def classes(work: Path, rows: int, features: int, count: int = 10) -> tuple[Path, Path, Path]:
    """Make a label-sorted table of several classes: features .npy, labels .npy (int64), and both as Arrow IPC."""
    stem = f"classes-{rows}x{features}"
    x, y, arrow = (work / f"{stem}{end}" for end in ("-x.npy", "-y.npy", ".arrow"))
    if not arrow.exists():
        labels = np.arange(rows) * count // rows
        np.save(y, labels)
        array = np.lib.format.open_memmap(x, "w+", np.float32, (rows, features))
        for start in range(0, rows, CHUNK):
            part = array[start : start + CHUNK]
            part[:] = np.random.default_rng(start).standard_normal(part.shape, np.float32)
            part[:, 0] = labels[start : start + CHUNK]
        array.flush()
        del array, part
        convert(x, arrow, label=str(y))
    return x, y, arrow


def numbered(work: Path, rows: int, row_bytes: int = 1024) -> tuple[Path, Path]:
    """Make a table whose label is the row's number: Arrow IPC file, and Arrow stream as Hugging Face keeps it."""
    arrow, stream = work / f"numbered-{rows}.arrow", work / f"numbered-{rows}-stream.arrow"
    if not stream.exists():
        width = row_bytes // 4 - 1
        schema = pa.schema([("features", pa.list_(pa.float32(), width)), ("label", pa.int32())])
        with Writer(arrow, schema) as file, pa.ipc.new_stream(str(stream), schema) as copy:
            for start in range(0, rows, 10_000):
                label = np.arange(start, min(start + 10_000, rows), dtype=np.int32)
                values = pa.array(np.repeat(label.astype(np.float32), width))
                columns = [pa.FixedSizeListArray.from_arrays(values, width), pa.array(label)]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
                file.write(batch)
                for at in range(0, batch.num_rows, 1000):  # the record batches that datasets writes
                    copy.write(batch.slice(at, 1000))
    return arrow, stream
