"""Generated tables of the benchmarks."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

import corgipile as cp
from corgipile.conversion import convert
from corgipile.datasets import higgs_like
from corgipile.tables.formats.arrow.note import write_note
from corgipile.tables.formats.arrow.writer import Writer

CHUNK = 1 << 16


def higgs(work: Path, rows: int, features: int) -> Path:
    """Make a label-sorted binary table, Arrow IPC, float32 features."""
    path = work / f"higgs-{rows}x{features}.arrow"
    if not path.exists():
        higgs_like(path, rows, features=features, seed=1)
    return path


def sparse(work: Path, rows: int, filled: int, width: int) -> Path:
    """Make a label-sorted table of sparse rows, indices and values, as `corgipile.convert` writes them."""
    path = work / f"sparse-{rows}x{filled}-of-{width}.arrow"
    if path.exists():
        return path
    random, apart = np.random.default_rng(2), width // filled
    places = (np.arange(filled) * apart + random.integers(0, apart, (rows, filled))).astype(np.int32)
    values = random.standard_normal((rows, filled), np.float32)
    label = ((values * random.standard_normal(width, np.float32)[places]).sum(axis=1) > 0).astype(np.int32)
    order, ends = np.argsort(label, kind="stable"), np.arange(0, rows * filled + 1, filled, dtype=np.int32)
    made = {"features_k": places[order], "features_v": values[order]}
    lists = {name: pa.ListArray.from_arrays(ends, one.ravel()) for name, one in made.items()}
    table = pa.table({**lists, "label": label[order]})
    convert(table.replace_schema_metadata({"corgipile.dims": str(width)}), path)
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


def numbered(work: Path, rows: int, row_bytes: int = 1024, *, stream: bool = True) -> tuple[Path, Path]:
    """Make a table whose label is the row number: an Arrow IPC file, and an Arrow stream as used by Hugging Face."""
    arrow, copied = (work / f"numbered-{rows}x{row_bytes}{end}.arrow" for end in ("", "-stream"))
    if not (copied if stream else arrow).exists():
        width = row_bytes // 4 - 1
        schema = pa.schema([("features", pa.list_(pa.float32(), width)), ("label", pa.int32())])
        with Writer(arrow, schema) as file, pa.ipc.new_stream(str(copied), schema) if stream else nullcontext() as copy:
            for start in range(0, rows, 10_000):
                label = np.arange(start, min(start + 10_000, rows), dtype=np.int32)
                values = pa.array(np.repeat(label.astype(np.float32), width))
                columns = [pa.FixedSizeListArray.from_arrays(values, width), pa.array(label)]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
                file.write(batch)
                for at in range(0, batch.num_rows if copy else 0, 1000):  # the record batches that datasets writes
                    copy.write(batch.slice(at, 1000))
    return arrow, copied


def arrays(arrow: Path) -> tuple[Path, Path]:
    """Write the features and labels of an Arrow file as two .npy files next to it."""
    x, y = (arrow.with_name(f"{arrow.stem}{end}") for end in ("-x.npy", "-y.npy"))
    if not y.exists():
        table = cp.open(arrow)
        width = table.schema.field("features").type.list_size
        array, labels = np.lib.format.open_memmap(x, "w+", np.float32, (len(table), width)), []
        for start in range(0, len(table), CHUNK):
            part = table.read(start, min(start + CHUNK, len(table)))
            array[start : start + CHUNK] = part.column("features").flatten().to_numpy().reshape(-1, width)
            labels.append(part.column("label").to_numpy())
        array.flush()
        np.save(y, np.concatenate(labels).astype(np.int64))
    return x, y


def hollow(path: Path, size: int, row_bytes: int, batch_rows: int, *, noted: bool) -> Path:
    """Make a sparse Arrow IPC file of zeros, which takes disk space only between the rows.

    Args:
        path: File to write.
        size: Bytes of all rows.
        row_bytes: Bytes of a row.
        batch_rows: Rows of a record batch.
        noted: Note the rows of each batch before the footer, as corgipile's own writer does.
    """
    batches = size // (row_bytes * batch_rows)
    schema = pa.schema([("features", pa.list_(pa.float32(), row_bytes // 4))])
    zeros = pa.array(np.zeros(batch_rows * row_bytes // 4, np.float32))
    batch = pa.RecordBatch.from_arrays([pa.FixedSizeListArray.from_arrays(zeros, row_bytes // 4)], schema=schema)
    with (
        path.open("wb") as file,
        pa.ipc.new_file(pa.PythonFile(Hollow(file, batch_rows * row_bytes), "w"), schema) as writer,
    ):
        for _ in range(batches):
            writer.write_batch(batch)
    if noted:
        write_note(path)
    return path


class Hollow:
    """A file that leaves a hole instead of ``hole`` bytes written at once."""

    closed = False

    def __init__(self, file: IO[bytes], hole: int) -> None:
        self._file, self._hole = file, hole

    def write(self, data: Any) -> int:
        """Write or skip bytes."""
        return self._file.write(data) if len(data) != self._hole else self._file.seek(len(data), os.SEEK_CUR)

    def tell(self) -> int:
        """Return the position of the next write."""
        return self._file.tell()

    def flush(self) -> None:
        """Flush written bytes."""
        self._file.flush()

    def close(self) -> None:
        """Leave the file to its opener."""
        self.closed = True
