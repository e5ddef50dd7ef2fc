"""Tables in common formats: shuffled epochs against the formats' own readers in storage order."""

import io
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from common import Bench, Peer, alone, check, interleave, median, rate, ratio, walk
from pyarrow import csv
from torch.utils.data import DataLoader

import corgipile as cp
from corgipile import quality
from corgipile.tables.io.index_cache import INDEX_SUFFIX
from corgipile.torch import CorgiPileDataset

BATCH, MEMORY, CLASSES = 64, "64MB", 10
GENES, EXPRESSED, TYPES = 2000, 100, 20
JPEG, SHARD = 56_000, 500  # bytes of an image, about, and samples of a shard


def shards(folder: Path, rows: int) -> str:
    """Write shards of images sorted by class; return their pattern."""
    folder.mkdir(exist_ok=True)
    count, random = -(-rows // SHARD), np.random.default_rng(0)
    for shard in range(count):
        with tarfile.open(folder / f"s-{shard:06}.tar", "w") as archive:
            for row in range(shard * SHARD, min(rows, shard * SHARD + SHARD)):
                image = random.bytes(int(random.integers(JPEG // 2, JPEG * 3 // 2)))
                for end, data in (("cls", b"%d" % (row * CLASSES // rows)), ("jpg", image)):
                    member = tarfile.TarInfo(f"{row:08}.{end}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return f"{folder}/s-{{000000..{count - 1:06}}}.tar"


def epoch(dataset: CorgiPileDataset, workers: int, rows: int) -> tuple[float, np.ndarray]:
    """Return the seconds of an epoch and its labels."""
    start = time.perf_counter()
    labels = [batch["cls"].numpy() for batch in DataLoader(dataset, batch_size=None, num_workers=workers)]
    seconds, found = time.perf_counter() - start, np.concatenate(labels)
    check(bool((np.bincount(found) == np.bincount(np.arange(rows) * CLASSES // rows)).all()), "labels are not those")
    return seconds, found


def webdataset_part(bench: Bench) -> None:
    """Compare JPEG shards, warm: rows per second and deff of an epoch; theirs in storage order, without a buffer."""
    rows = bench.table_rows(12_000, 3_000)
    pattern = shards(bench.work / "shards", rows)
    for workers in (0, 2):
        with Peer("webdataset", pattern=pattern, batch=BATCH, workers=workers) as peer:
            dataset = CorgiPileDataset(pattern, batch_size=BATCH, memory=MEMORY)
            deff = quality.deff(epoch(dataset, workers, rows)[1], BATCH)
            cases = {
                "peer": lambda peer=peer: peer.seconds(rows),
                "ours": lambda dataset=dataset, workers=workers: epoch(dataset, workers, rows)[0],
            }
            times = interleave(cases, bench.few)
        value, spread = ratio(times, "peer", "ours")
        note = ", ".join(f"{name} {rate(rows, median(times[name]))}" for name in times)
        what = f"JPEG shards, shuffled / webdataset in storage order, {workers} workers"
        bench.report(what, value, "x", ">= 1.0", f"{note} ({spread})")
        bench.report(f"deff of its labels, stored sorted, {workers} workers", deff, "", "<= 1.5")


def columns_part(bench: Bench) -> None:
    """Compare 28 numeric columns and a label with one packed column, warm: batches of features and label."""
    rows = bench.table_rows(2_000_000, 1_000_000)
    values = np.random.default_rng(0).standard_normal((28, rows), np.float32)
    label = np.arange(rows, dtype=np.int32) * 2 // rows  # sorted
    flat = pa.table({**{f"x{i}": column for i, column in enumerate(values)}, "label": label})
    text = flat.set_column(28, "label", pa.array(np.array(["no", "yes"])[label]))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.T.ravel()), 28)
    packed = pa.table({"features": lists, "label": label})
    frame = flat.to_pandas()
    frame.to_parquet(bench.work / "pandas.parquet", index=False)
    for name, table in (("packed", packed), ("flat", flat), ("text", text)):
        with pa.ipc.new_file(bench.work / f"{name}.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=1 << 16)
    sources = {
        "packed": bench.work / "packed.arrow",
        "columns": bench.work / "flat.arrow",
        "columns, a label of text": bench.work / "text.arrow",
        "pandas": frame,
        "Polars": pl.from_pandas(frame),
        "Parquet of pandas": bench.work / "pandas.parquet",
    }
    how = {"batch_size": 256, "memory": MEMORY, "features": None, "label": "label"}
    loaders = {name: cp.Loader(source, **how) for name, source in sources.items()}
    cases = {name: (lambda loader=loader: walk(loader, rows)) for name, loader in loaders.items()}
    cases["pyarrow in order"] = lambda: parquet_in_order(bench.work / "pandas.parquet", rows)
    times = interleave(cases, bench.repeats)
    for name in list(sources)[1:]:
        value, spread = ratio(times, "packed", name)
        note = f"{rate(rows, median(times[name]))} against {rate(rows, median(times['packed']))} ({spread})"
        bench.report(f"28 columns and a label, {name} / packed", value, "x", ">= 0.6", note)
    value, spread = ratio(times, "pyarrow in order", "Parquet of pandas")
    what = "Parquet as pandas writes it, shuffled batches / pyarrow reading it once in order"
    bench.report(what, value, "x", ">= 0.7", spread)
    labels = np.concatenate([batch["label"] for batch in loaders["Parquet of pandas"]])
    bench.report("deff of its labels, stored sorted", quality.deff(labels, 256), "", "<= 1.5")
    for loader in loaders.values():
        loader.close()


def parquet_in_order(path: Path, rows: int) -> float:
    """Return the seconds that pyarrow takes to read a file in batches."""
    batches = pq.ParquetFile(path).iter_batches(8192)
    return seconds(lambda: check(sum(len(batch) for batch in batches) == rows, "rows"))


def csv_part(bench: Bench) -> None:
    """Measure CSV text of 28 numbers and a label, warm: the scan for rows, and epochs against readers in order."""
    path, rows = text(bench.work / "rows.csv", bench.pick(2 << 30, 256 << 20))
    size = path.stat().st_size

    def opening() -> float:
        Path(f"{path}{INDEX_SUFFIX}").unlink(missing_ok=True)
        return seconds(lambda: cp.open(path))

    def in_order(*, threads: bool) -> float:
        options = csv.ReadOptions(use_threads=threads)
        return seconds(lambda: check(sum(batch.num_rows for batch in csv.open_csv(path, options)) == rows, "rows"))

    def by_duckdb() -> float:
        import duckdb  # noqa: PLC0415 - an extra

        batches = duckdb.read_csv(str(path)).to_arrow_reader(8192)
        return seconds(lambda: check(sum(batch.num_rows for batch in batches) == rows, "rows"))

    scans = [opening() for _ in range(bench.few)]
    bench.report("CSV: the first opening, scan for rows and survey", size / median(scans) / 1e9, "GB/s", ">= 1")
    with cp.Loader(cp.open(path), batch_size=256, memory=MEMORY) as loader:
        cases = {
            "pyarrow": lambda: in_order(threads=True),
            "pyarrow, one thread": lambda: in_order(threads=False),
            "DuckDB": by_duckdb,
            "ours": lambda: walk(loader, rows),
        }
        times = interleave(cases, bench.few, warm=False)
    for name, target in (("pyarrow", ">= 0.7"), ("DuckDB", ">= 0.7"), ("pyarrow, one thread", "")):
        value, spread = ratio(times, name, "ours")
        speeds = ", ".join(f"{case} {size / median(times[case]) / 1e6:.0f} MB/s" for case in ("ours", name))
        what = f"CSV, shuffled, batches of 29 columns / {name} in order"
        bench.report(what, value, "x", target, f"{speeds} ({spread})")


def text(path: Path, size: int) -> tuple[Path, int]:
    """Write CSV text of about a given size; return its rows, too."""
    rows = 20_000
    values = np.random.default_rng(0).standard_normal((28, rows), np.float32)
    one = {**{f"x{i}": column for i, column in enumerate(values)}, "label": np.arange(rows) % 2}
    made = io.BytesIO()
    csv.write_csv(pa.table(one), made)
    names, _, lines = made.getvalue().partition(b"\n")
    times = max(1, size // len(lines))
    with path.open("wb") as file:
        file.write(names + b"\n")
        for _ in range(times):
            file.write(lines)
    return path, rows * times


def cells(path: Path, rows: int) -> Path:
    """Write cells by genes like AnnData: sparse rows of about 100 of 2,000 genes, sorted by cell type."""
    import anndata  # noqa: PLC0415 - an extra
    import pandas as pd  # noqa: PLC0415 - comes with it
    from scipy.sparse import csr_matrix  # noqa: PLC0415 - as above

    draw, step = np.random.default_rng(0), GENES // EXPRESSED
    genes = draw.integers(0, step, (rows, EXPRESSED), np.int32) + np.arange(0, GENES, step, np.int32)
    ends = np.arange(0, genes.size + 1, EXPRESSED)
    values = draw.integers(1, 9, genes.size).astype(np.float32)
    kinds = pd.Categorical.from_codes(np.arange(rows) * TYPES // rows, [f"type {i}" for i in range(TYPES)])
    known = pd.DataFrame({"cell_type": kinds}, index=np.arange(rows).astype(str))
    anndata.AnnData(csr_matrix((values, genes.ravel(), ends), (rows, GENES)), obs=known).write_h5ad(path)
    return path


def anndata_part(bench: Bench) -> None:
    """Compare with scDataset, as its guide recommends, on cells by genes: dense batches and the cell type, warm."""
    rows = bench.table_rows(1_000_000, 100_000)
    path, some = cells(bench.work / "cells.h5ad", rows), min(rows, 20_000)
    asked = {"path": str(path), "column": "cell_type", "batch": BATCH, "block": 16, "fetch": 256}
    with Peer("scdataset cells", **asked) as peer, cp.Loader(path, batch_size=BATCH, label="cell_type") as loader:
        labels = np.concatenate([batch["label"] for batch in loader])
        check(bool((np.bincount(labels) == np.bincount(np.arange(rows) * TYPES // rows)).all()), "other labels came")
        out = bench.work / "labels.npy"
        peer.ask(labels=str(out), limit=some)
        cases = {"peer": lambda: peer.seconds(limit=some) * rows / some, "ours": lambda: walk(loader, rows)}
        times = interleave(cases, bench.few)
    value, spread = ratio(times, "peer", "ours")
    note = ", ".join(f"{name} {rate(rows, median(times[name]))}" for name in times)
    bench.report("AnnData of sparse rows, dense batches of 64 / scDataset", value, "x", ">= 2", f"{note} ({spread})")
    deffs = quality.deff(labels, BATCH), quality.deff(np.load(out), BATCH)
    bench.report("deff of the types of cells, stored sorted", deffs[0], "", f"<= {deffs[1]:.3f}", "bound: scDataset")


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("columns", columns_part)
    bench.part("webdataset", webdataset_part)
    bench.part("csv", csv_part)
    bench.part("anndata", anndata_part)


if __name__ == "__main__":
    alone("tables", main)
