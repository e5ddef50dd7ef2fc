"""Audits of loaders, ours and other projects', over one table sorted by label: a Markdown line for each.

Runs in any environment with NumPy and pyarrow and corgipile on the path; skips packages that are not installed:

    for env in bench/.venv-peers bench/.venv-mosaicml; do PYTHONPATH=src $env/bin/python bench/audit_peers.py; done
"""
# ruff: noqa: PLC0415 - each loader imports its own package

import importlib.metadata
import os
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa

import corgipile as cp
from corgipile import quality

ROWS, BATCH, KINDS, SHARDS, BUFFER = 100_000, 256, 10, 20, 4_000
LABELS = np.arange(ROWS) * KINDS // ROWS


def corgipile(folder: Path) -> object:
    """Yield our batches, with memory for 4,000 rows."""
    cp.convert(pa.table({"row": np.arange(ROWS), "label": LABELS}), folder / "rows.arrow")
    return cp.Loader(folder / "rows.arrow", batch_size=BATCH, memory=BUFFER * 16)


def torch_shuffle(_: Path) -> object:
    """Yield batches of a DataLoader over a map-style dataset, rows at random."""
    from torch.utils.data import DataLoader

    return DataLoader([{"row": row, "label": int(LABELS[row])} for row in range(ROWS)], batch_size=BATCH, shuffle=True)


def torch_workers(_: Path) -> object:
    """An IterableDataset with two workers that ignores its worker number."""
    from torch.utils.data import DataLoader, IterableDataset

    class Rows(IterableDataset):
        def __iter__(self) -> Iterator[dict[str, int]]:
            for row in np.random.permutation(ROWS).tolist():  # noqa: NPY002 - as people write it
                yield {"row": row, "label": int(LABELS[row])}

    return DataLoader(Rows(), batch_size=BATCH, num_workers=2)


def huggingface(_: Path) -> object:
    """Yield batches of datasets: an iterable dataset of 20 shards, its shuffle buffer, set_epoch as documented."""
    from datasets import Dataset

    data = Dataset.from_dict({"row": np.arange(ROWS), "label": LABELS}).to_iterable_dataset(num_shards=SHARDS)
    return Again(lambda epoch: told(data.shuffle(seed=1, buffer_size=BUFFER).batch(BATCH), epoch))


def told(data, epoch):
    """Set a dataset's epoch."""
    data.set_epoch(epoch)
    return data


class Again:
    """A loader that is rebuilt for each epoch."""

    def __init__(self, make: Callable[[int], object]) -> None:
        self.make, self.epoch = make, -1

    def __iter__(self) -> Iterator[object]:
        self.epoch += 1
        return iter(self.make(self.epoch))


def webdataset(folder: Path) -> object:
    """Yield batches of webdataset: 20 shards in random order, its shuffle buffer, batched."""
    import webdataset as wds

    for shard in range(SHARDS):
        with tarfile.open(folder / f"rows-{shard:03}.tar", "w") as tar:
            for row in range(shard * ROWS // SHARDS, (shard + 1) * ROWS // SHARDS):
                for suffix, data in (("cls", str(LABELS[row]).encode()), ("row", str(row).encode())):
                    entry = tarfile.TarInfo(f"{row:08}.{suffix}")
                    entry.size = len(data)
                    tar.addfile(entry, BytesIO(data))
    shards = str(folder / f"rows-{{000..{SHARDS - 1:03}}}.tar")
    data = wds.WebDataset(shards, shardshuffle=SHARDS).shuffle(BUFFER)
    return data.to_tuple("row", "cls").map_tuple(int, int).batched(BATCH)


def scdataset(folder: Path) -> object:
    """Yield batches of scDataset: blocks of 16 rows, 16 batches fetched at a time."""
    from scdataset import BlockShuffling, scDataset
    from torch.utils.data import DataLoader

    np.save(folder / "rows.npy", np.column_stack([np.arange(ROWS), LABELS]))
    data = scDataset(np.load(folder / "rows.npy"), BlockShuffling(block_size=16), batch_size=BATCH, fetch_factor=16)
    return DataLoader(data, batch_size=None, collate_fn=lambda rows: (rows[:, 0], rows[:, 1]))


def grain(_: Path) -> object:
    """Yield batches of Grain: a global shuffle of row numbers, seeded by epoch."""
    import grain as package

    read = lambda rows: {"row": rows, "label": LABELS[rows]}  # noqa: E731
    rows = package.MapDataset.range(ROWS)
    return Again(lambda epoch: rows.shuffle(seed=epoch).batch(BATCH).map(read).to_iter_dataset())


def streaming(folder: Path) -> object:
    """Yield batches of MosaicML streaming with py1e."""
    sys.path.insert(0, str(Path(__file__).parent))
    from peer_loaders import without_torchvision

    warnings.simplefilter("ignore")
    without_torchvision()
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    with MDSWriter(
        out=str(folder / "mds"), columns={"row": "int", "label": "int"}, size_limit=16 * ROWS // SHARDS
    ) as out:
        for row in range(ROWS):
            out.write({"row": row, "label": int(LABELS[row])})
    data = StreamingDataset(local=str(folder / "mds"), batch_size=BATCH, shuffle=True, num_canonical_nodes=1)
    return StreamingDataLoader(data, batch_size=BATCH)


def litdata(folder: Path) -> object:
    """Yield batches of LitData: 20 chunks, its shuffle."""
    from litdata import StreamingDataLoader, StreamingDataset, optimize

    optimize(
        one_row, list(range(ROWS)), str(folder / "chunks"), chunk_size=ROWS // SHARDS, num_workers=1, verbose=False
    )
    return StreamingDataLoader(StreamingDataset(str(folder / "chunks"), shuffle=True), batch_size=BATCH)


def one_row(row: int) -> dict[str, int]:
    """Return a row; a module-level function for another process."""
    return {"row": row, "label": int(LABELS[row])}


def ray_data(_: Path) -> object:
    """Yield batches of Ray Data: 20 blocks in random order, its local shuffle buffer."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}  # it leaves and sends nothing
    import ray

    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=128 << 20, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    table = pa.table({"row": np.arange(ROWS), "label": LABELS})
    data = ray.data.from_arrow([table.slice(at, ROWS // SHARDS) for at in range(0, ROWS, ROWS // SHARDS)])
    shuffled = {"batch_size": BATCH, "local_shuffle_buffer_size": BUFFER}
    return Again(lambda _: data.randomize_block_order().iter_batches(**shuffled))


PAIRS = {"webdataset": (0, 1), "scdataset": (0, 1)}  # whose batches are pairs
CASES = {
    "corgipile, default": (corgipile, "corgipile"),
    "torch `DataLoader(shuffle=True)`": (torch_shuffle, "torch"),
    "torch `IterableDataset`, 2 workers, unsplit": (torch_workers, "torch"),
    "datasets, `shuffle(buffer_size=4000)`, 20 shards": (huggingface, "datasets"),
    "webdataset, 20 shards, `shuffle(4000)`": (webdataset, "webdataset"),
    "scDataset, blocks of 16": (scdataset, "scDataset"),
    "Grain, `shuffle`": (grain, "grain"),
    "LitData, 20 chunks, `shuffle=True`": (litdata, "litdata"),
    "Ray Data, 20 blocks, `randomize_block_order`, `local_shuffle_buffer_size=4000`": (ray_data, "ray"),
    "MosaicML Streaming, `py1e`": (streaming, "mosaicml-streaming"),
}


def line(name: str, make: Callable[[Path], object], package: str) -> str:
    """Audit one loader."""
    version = cp.__version__ if package == "corgipile" else importlib.metadata.version(package)
    row, key = PAIRS.get(package.lower(), ("row", "label"))
    with tempfile.TemporaryDirectory() as folder:
        report = quality.audit(make(Path(folder)), id=row, key=key, rows=ROWS)
    spread = report.epochs[1].spreads[0]
    figures = [f"{value:.2f} ± {half:.2f}" for value, half in (spread.deff, spread.head, spread.tail)]
    figures += [f"{spread.prefix:.2f}", f"{spread.lags[0]:+.2f}", f"{spread.gap.ratio:.1f}"]
    faults = ", ".join(fault.name for fault in report.faults) or "none"
    return f"| {name} ({version}) | {' | '.join(figures)} | {faults} |"


def main() -> None:
    """Print the lines of installed packages, or of those whose names contain an argument."""
    print("| loader | deff | head | tail | prefix | next batch | longest wait | faults |")
    print("|---|---|---|---|---|---|---|---|")
    wanted = {name: case for name, case in CASES.items() if all(word in name for word in sys.argv[1:])}
    for name, (make, package) in wanted.items():
        try:
            print(line(name, make, package), flush=True)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
