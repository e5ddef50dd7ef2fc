"""Tables of about the same size in each common format and row shape."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from records import examples

FEATURES = 28
BLOB, WIDE = 100_000, 256 << 10  # bytes of a row of varying length, and of a wide row of fixed length

Maker = Callable[[Path, int], Path | list[Path]]


def _values(rows: int, start: int = 0) -> np.ndarray:
    return np.random.default_rng(start).standard_normal((rows, FEATURES), np.float32)


def _labels(start: int, stop: int, rows: int) -> np.ndarray:
    """Return labels 0 and 1, sorted."""
    return (np.arange(start, stop) * 2 // max(rows, 1)).astype(np.int32)


def _rows(size: int) -> int:
    return size // (4 * FEATURES + 4)


def _listed(rows: int, step: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of a list column of features and a label."""
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        flat = pa.array(_values(stop - start, start).ravel())
        columns = [pa.FixedSizeListArray.from_arrays(flat, FEATURES), pa.array(_labels(start, stop, rows))]
        yield pa.RecordBatch.from_arrays(columns, ["features", "label"])


def _scalars(rows: int) -> pa.Table:
    """Make a table with a column for each feature, as from a DataFrame."""
    values = _values(rows)
    columns = {f"x{i}": values[:, i] for i in range(FEATURES)}
    return pa.table({**columns, "label": _labels(0, rows, rows)})


def _bytes(sizes: np.ndarray, step_bytes: int = 8 << 20) -> Iterator[pa.RecordBatch]:
    """Yield batches of random bytes of these lengths and a label."""
    noise, start = np.random.default_rng(0).bytes(int(sizes.max(initial=1)) + 64), 0
    while start < len(sizes):
        fits = int(np.searchsorted(np.cumsum(sizes[start:]), step_bytes))
        stop = min(len(sizes), start + max(1, fits))
        data = pa.array([noise[i % 64 : i % 64 + int(sizes[i])] for i in range(start, stop)], pa.binary())
        yield pa.RecordBatch.from_arrays([data, pa.array(_labels(start, stop, len(sizes)))], ["image", "label"])
        start = stop


def _arrow(path: Path, batches: Iterator[pa.RecordBatch], compression: str | None = None) -> Path:
    first = next(batches)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(path), first.schema, options=options) as file:
        for batch in (first, *batches):
            file.write_batch(batch)
    return path


def arrow(path: Path, size: int) -> Path:
    """Write a list column of features, uncompressed."""
    return _arrow(path.with_suffix(".arrow"), _listed(_rows(size), 1 << 14))


def arrow_scalars(path: Path, size: int) -> Path:
    """Write scalar columns as pyarrow does by default: one record batch for a million rows."""
    return _arrow(path.with_suffix(".arrow"), iter(_scalars(_rows(size)).to_batches()))


def arrow_narrow(path: Path, size: int) -> Path:
    """Write rows of 5 bytes, about the size of an order's plan per row."""
    rows = max(1, size // 5)
    columns = {
        "x": np.random.default_rng(0).standard_normal(rows, np.float32),
        "label": _labels(0, rows, rows).astype(np.int8),
    }
    return _arrow(path.with_suffix(".arrow"), iter(pa.table(columns).to_batches()))


def arrow_texts(path: Path, size: int) -> Path:
    """Write features and a label with a different text in each row."""
    rows = max(1, size // 72)
    features = pa.FixedSizeListArray.from_arrays(pa.array(_values(rows)[:, :8].ravel()), 8)
    texts = pa.array([f"a text like no other, no. {row:09}" for row in range(rows)])
    return _arrow(path.with_suffix(".arrow"), iter(pa.table({"features": features, "label": texts}).to_batches()))


def arrow_categories(path: Path, size: int) -> Path:
    """Write features and a dictionary-encoded category, as pandas and Polars do, in one record batch."""
    rows, draw = size // 48, np.random.default_rng(0)
    names = pa.array([f"category {i:05} of many" for i in range(10_000)])
    kind = pa.DictionaryArray.from_arrays(pa.array(draw.integers(0, len(names), rows).astype(np.int16)), names)
    columns = {f"x{i}": draw.standard_normal(rows) for i in range(4)}
    table = pa.table({**columns, "kind": kind, "label": _labels(0, rows, rows)})
    return _arrow(path.with_suffix(".arrow"), iter(table.to_batches()))


def arrow_zstd(path: Path, size: int) -> Path:
    """Write compressed record batches of 65,536 rows, as `pyarrow.feather` and DuckDB do."""
    return _arrow(path.with_suffix(".arrow"), _listed(_rows(size), 1 << 16), "zstd")


def arrow_zstd_whole(path: Path, size: int) -> Path:
    """Write one compressed record batch."""
    return _arrow(path.with_suffix(".arrow"), _listed(_rows(size), _rows(size)), "zstd")


def arrow_zstd_many(path: Path, size: int) -> Path:
    """Write a folder of many compressed files, a thousand for 96 MB: a column for each feature."""
    files, table = max(2, size // 100_000), _scalars(_rows(size))
    path.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(table)), files)):
        some = table.slice(int(rows[0]), len(rows))
        _arrow(path / f"{number:06}.arrow", iter(some.to_batches()), "zstd")
    return path


def stream(path: Path, size: int) -> Path:
    """Write an Arrow stream, as Hugging Face datasets do."""
    rows, path = _rows(size), path.with_suffix(".arrows")
    batches = _listed(rows, 1000)
    first = next(batches)
    with pa.ipc.new_stream(str(path), first.schema) as file:
        for batch in (first, *batches):
            file.write_batch(batch)
    return path


def parquet(path: Path, size: int) -> Path:
    """Write Parquet as pandas and pyarrow do by default: scalar columns, row groups of a million rows."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = path.with_suffix(".parquet")
    pq.write_table(_scalars(_rows(size)), path)
    return path


def parquet_lists(path: Path, size: int) -> Path:
    """Write Parquet with one list<double> column, as pandas writes a column of arrays."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    rows, path = _rows(size) // 2, path.with_suffix(".parquet")
    values = pa.array(_values(rows).astype(np.float64).ravel())
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * FEATURES)
    column = pa.ListArray.from_arrays(offsets, values)
    pq.write_table(pa.table({"features": column, "label": _labels(0, rows, rows)}), path)
    return path


def parquet_small(path: Path, size: int) -> Path:
    """Write Parquet in row groups of 8,192 rows."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = path.with_suffix(".parquet")
    pq.write_table(_scalars(_rows(size)), path, row_group_size=8192)
    return path


def parquet_blobs(path: Path, size: int) -> Path:
    """Write Parquet with images of varying length, in one row group as pandas does."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = path.with_suffix(".parquet")
    sizes = np.random.default_rng(1).integers(BLOB // 2, BLOB * 3 // 2, max(4, size // BLOB))
    pq.write_table(pa.Table.from_batches(_bytes(sizes)), path)
    return path


def parquet_categories(path: Path, size: int) -> Path:
    """Write Parquet with a category of many values, as pandas does, in one dictionary."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    path, rows, draw = path.with_suffix(".parquet"), size // 48, np.random.default_rng(0)
    names = pa.array([f"user {i:06}" for i in range(150_000)])
    users = pa.DictionaryArray.from_arrays(pa.array(draw.integers(0, len(names), rows).astype(np.int32)), names)
    columns = {f"x{i}": draw.standard_normal(rows) for i in range(4)}
    pq.write_table(pa.table({**columns, "user": users, "label": _labels(0, rows, rows)}), path)
    return path


def numpy(path: Path, size: int) -> Path:
    """Write features and labels as two .npy files; the labels' name is the features' with another ending."""
    rows = _rows(size)
    np.save(path.with_suffix(".npy"), _values(rows))
    np.save(path.with_suffix(".labels.npy"), _labels(0, rows, rows))
    return path.with_suffix(".npy")


def tfrecord(path: Path, size: int) -> Path:
    """Write tensorflow.Example records."""
    return examples(path.parent, size // (4 * FEATURES + 50), FEATURES, 2)


def webdataset(path: Path, size: int) -> Path:
    """Write two shards of images of 50 to 150 KB with labels."""
    sizes = np.random.default_rng(1).integers(BLOB // 2, BLOB * 3 // 2, max(4, size // BLOB))
    draw, shards = np.random.default_rng(2), [path.with_name(f"{path.name}-{i}.tar") for i in range(2)]
    for shard, some in zip(shards, np.array_split(np.arange(len(sizes)), 2), strict=True):
        with tarfile.open(shard, "w") as archive:
            for row in some.tolist():
                label = b"%d" % _labels(row, row + 1, len(sizes))[0]
                for end, data in (("label", label), ("jpg", draw.bytes(int(sizes[row])))):
                    member = tarfile.TarInfo(f"{row:06}.{end}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return path.with_name(f"{path.name}-{{0,1}}.tar")


def orc(path: Path, size: int) -> Path:
    """Write ORC as pandas does: a column for each feature, stripes of 64 MB."""
    from pyarrow.orc import write_table  # noqa: PLC0415

    path = path.with_suffix(".orc")
    write_table(_scalars(_rows(size)), path)
    return path


def duckdb(path: Path, size: int) -> Path:
    """Write a table of a DuckDB database: a column for each feature."""
    import duckdb as library  # noqa: PLC0415

    path, rows = path.with_suffix(".duckdb"), _scalars(_rows(size))
    with library.connect(str(path)) as database:
        database.register("rows", rows)
        database.execute("create table t as select * from rows")
    return path


def csv(path: Path, size: int) -> Path:
    """Write CSV text as pandas and pyarrow do: a column for each feature."""
    from pyarrow.csv import write_csv  # noqa: PLC0415

    path = path.with_suffix(".csv")
    write_csv(_scalars(size // (10 * FEATURES)), path)
    return path


def svmlight(path: Path, size: int) -> Path:
    """Write sparse text, about 40 of 1,000 features a row."""
    path, draw = path.with_suffix(".svm"), np.random.default_rng(0)
    lines = []
    for _ in range(1000):
        places = np.sort(draw.choice(1000, 40, replace=False)) + 1
        lines.append(" ".join(f"{place}:{draw.standard_normal():.4f}" for place in places))
    rows = size // (len(lines[0]) + 3)
    with path.open("w") as file:
        for start in range(0, rows, 1000):
            stop = min(rows, start + 1000)
            labels = _labels(start, stop, rows)
            file.writelines(f"{label} {line}\n" for label, line in zip(labels, lines[: stop - start], strict=True))
    return path


def blobs(path: Path, size: int) -> Path:
    """Write images of 50 to 150 KB with labels."""
    sizes = np.random.default_rng(1).integers(BLOB // 2, BLOB * 3 // 2, max(4, size // BLOB))
    return _arrow(path.with_suffix(".arrow"), _bytes(sizes))


def uneven(path: Path, size: int) -> Path:
    """Write rows of 1 KB; one in a thousand has 1 MB."""
    rows = max(4, size // 2048)
    sizes = np.where(np.arange(rows) % 1000 == 999, 1 << 20, 1 << 10)
    return _arrow(path.with_suffix(".arrow"), _bytes(sizes))


def nested(path: Path, size: int) -> Path:
    """Write rows with lists of numbers, like detections in images."""
    rows = max(4, size // 480)
    boxes = np.random.default_rng(0).integers(2, 28, rows)
    ends = np.append(0, np.cumsum(boxes)).astype(np.int32)
    values = _values(int(ends[-1]))[:, :4].astype(np.float64)
    inner = pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32) * 4, values.ravel())
    table = pa.table({"boxes": pa.ListArray.from_arrays(ends, inner), "label": _labels(0, rows, rows)})
    return _arrow(path.with_suffix(".arrow"), iter(table.to_batches(1 << 13)))


def structures(path: Path, size: int) -> Path:
    """Write rows with lists of structures, like conversations."""
    rows, draw = max(4, size // 480), np.random.default_rng(0)
    turns = draw.integers(2, 8, rows)
    count = int(turns.sum())
    said = pa.array([b"word " * many for many in draw.integers(4, 24, count).tolist()]).cast(pa.string())
    who = pa.array(["user", "assistant"] * (count // 2 + 1))[:count]
    each = pa.StructArray.from_arrays([who, said, pa.array(draw.standard_normal(count))], ["from", "value", "score"])
    column = pa.ListArray.from_arrays(np.append(0, np.cumsum(turns)).astype(np.int32), each)
    table = pa.table({"turns": column, "label": _labels(0, rows, rows)})
    return _arrow(path.with_suffix(".arrow"), iter(table.to_batches(1 << 13)))


def wide(path: Path, size: int) -> Path:
    """Write rows of 256 KB of fixed length."""
    rows = max(4, size // WIDE)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, 16):
            stop = min(rows, start + 16)
            flat = pa.array(np.random.default_rng(start).integers(0, 256, (stop - start) * WIDE, np.uint8))
            columns = [pa.FixedSizeListArray.from_arrays(flat, WIDE), pa.array(_labels(start, stop, rows))]
            yield pa.RecordBatch.from_arrays(columns, ["features", "label"])

    return _arrow(path.with_suffix(".arrow"), batches())


def hdf5(path: Path, size: int) -> Path:
    """Write HDF5 with gzip chunks, as h5py chooses them."""
    import h5py  # noqa: PLC0415

    rows, path = _rows(size), path.with_suffix(".h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=_values(rows), compression="gzip", compression_opts=1)
        file.create_dataset("label", data=_labels(0, rows, rows), compression="gzip")
    return path


def h5ad(path: Path, size: int) -> Path:
    """Write cells as AnnData does with compression: sparse rows of about 100 of 2,000 genes."""
    import h5py  # noqa: PLC0415

    rows, path, draw = max(4, size // 800), path.with_suffix(".h5ad"), np.random.default_rng(0)
    ends = np.append(0, np.cumsum(draw.integers(50, 150, rows)))
    steps = draw.integers(1, 13, int(ends[-1]), np.int32)
    places = np.cumsum(steps, dtype=np.int64)
    parts = {
        "indptr": ends,
        "indices": (places - np.repeat(places[ends[:-1]] - steps[ends[:-1]] + 1, np.diff(ends))).astype(np.int32),
        "data": steps.astype(np.float32),
    }
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", (rows, 2000)
        for name, values in parts.items():
            group.create_dataset(name, data=values, compression="gzip", compression_opts=1)
        file.create_dataset("obs/label", data=_labels(0, rows, rows), compression="gzip")
        file.create_group("var")
    return path


def images(path: Path, size: int) -> Path:
    """Write a folder of two classes of PNG files of about 50 KB."""
    from PIL import Image  # noqa: PLC0415

    draw = np.random.default_rng(0)
    for number in range(max(4, size // 50_000)):
        folder = path / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        data = io.BytesIO()
        Image.fromarray(draw.integers(0, 256, (128, 128, 3), np.uint8)).save(data, "PNG")
        (folder / f"{number:06}.png").write_bytes(data.getvalue())
    return path


SHAPES: dict[str, Maker] = {
    "arrow": arrow,
    "arrow, x1..x28": arrow_scalars,
    "arrow, categories": arrow_categories,
    "arrow, zstd": arrow_zstd,
    "arrow, zstd, one batch": arrow_zstd_whole,
    "arrow, zstd, many files": arrow_zstd_many,
    "arrow stream": stream,
    "parquet, x1..x28, as pandas": parquet,
    "parquet, list<double>": parquet_lists,
    "parquet, groups of 8,192": parquet_small,
    "parquet, images": parquet_blobs,
    "npy": numpy,
    "tfrecord": tfrecord,
    "svmlight": svmlight,
    "arrow, images of 100 KB": blobs,
    "arrow, 1 KB, some 1 MB": uneven,
    "arrow, lists of lists": nested,
    "arrow, structures": structures,
    "arrow, rows of 256 KB": wide,
    "image folder": images,
    "webdataset": webdataset,
    "orc, x1..x28": orc,
    "duckdb, x1..x28": duckdb,
    "csv": csv,
    "hdf5, gzip": hdf5,
    "h5ad, sparse, gzip": h5ad,
    "parquet, categories": parquet_categories,
    "arrow, 5 bytes": arrow_narrow,
    "arrow, texts": arrow_texts,
}
NO_NUMBERS = (
    "arrow, texts",
    *("parquet, images", "arrow, images of 100 KB", "arrow, 1 KB, some 1 MB", "image folder", "webdataset"),
    *("arrow, lists of lists", "arrow, structures"),
)
