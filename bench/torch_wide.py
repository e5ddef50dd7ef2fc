"""Wide rows against files behind a plain DataLoader and a full shuffle, rows of varying length, and small batches."""

import io
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from common import Bench, Peer, Skip, alone, check, interleave, median, rate, ratio
from torch.utils.data import DataLoader, Dataset

import corgipile as cp
from corgipile.tables import decode_image
from corgipile.torch import CorgiPileDataset

BATCH, MEMORY = 64, "64MB"
SIDE = 208  # pixels of an image of noise that takes about 56 KB as JPEG
WIDTHS = {"16 KB": 1 << 14, "128 KB": 1 << 17, "1 MB": 1 << 20}


class Files(Dataset[Any]):
    """Files and their labels, in the usual way: one open, one read and one close per row."""

    def __init__(self, folder: Path, rows: int, decode: bool) -> None:
        self._paths, self._decode = [str(folder / f"{row}.jpg") for row in range(rows)], decode

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        with open(self._paths[row], "rb") as file:  # noqa: PTH123 - what is measured
            data = file.read()
        return (torch.from_numpy(decode_image(data)) if self._decode else data), row


def decoded(batch: dict[str, Any]) -> dict[str, Any]:
    """Decode the images of a batch into one tensor."""
    images = torch.stack([torch.from_numpy(decode_image(image)) for image in batch["image"]])
    return {"image": images, "label": batch["label"]}


def images(bench: Bench) -> tuple[Path, Path, int]:
    """Write the same images as files and as one Arrow table."""
    try:
        from PIL import Image  # noqa: PLC0415 - not everybody has it
    except ImportError:
        raise Skip("Pillow is not installed") from None
    rows = bench.pick(6000, 1500)
    folder, arrow = bench.work / "images", bench.work / "images.arrow"
    if arrow.exists():
        return folder, arrow, rows
    folder.mkdir()
    random = np.random.default_rng(0)
    schema = pa.schema([("image", pa.binary()), ("label", pa.int64())])
    with pa.ipc.new_file(str(arrow), schema) as writer:
        for row in range(rows):
            file = io.BytesIO()
            pixels = random.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
            Image.fromarray(pixels).save(file, "JPEG", quality=90)
            (folder / f"{row}.jpg").write_bytes(file.getvalue())
            writer.write_batch(pa.record_batch([pa.array([file.getvalue()]), pa.array([row])], schema=schema))
    return folder, arrow, rows


def passed(batches: Iterator[tuple[Any, torch.Tensor]], rows: int) -> float:
    """Return the seconds per row of an epoch; each row must come once."""
    start = time.perf_counter()
    labels = [label for _, label in batches]
    seconds = time.perf_counter() - start
    seen = np.sort(torch.cat(labels).numpy())
    check(len(seen) == rows and bool((np.diff(seen) > 0).all()), f"{len(seen)} rows of {rows} came, or some twice")
    return seconds / len(seen)


def ours(loader: DataLoader[Any]) -> Iterator[tuple[Any, torch.Tensor]]:
    """Yield the training data of our batches."""
    return ((batch["image"], batch["label"]) for batch in loader)


def images_part(bench: Bench) -> None:
    """Measure rows per second of an epoch, warm."""
    folder, arrow, rows = images(bench)
    first = next(iter(cp.Loader(arrow, batch_size=1, order="no_shuffle")))
    check(first["image"][0] == (folder / "0.jpg").read_bytes(), "the table has other images than the folder")
    for decode in (False, True):
        for workers in (0, 2):
            dataset = CorgiPileDataset(arrow, batch_size=BATCH, memory=MEMORY, transform=decoded if decode else None)
            files = Files(folder, rows, decode)
            loaders: dict[str, Callable[[], Iterator[Any]]] = {
                "files": lambda f=files, w=workers: iter(DataLoader(f, BATCH, shuffle=True, num_workers=w)),
                "table": lambda d=dataset, w=workers: ours(DataLoader(d, batch_size=None, num_workers=w)),
            }
            cases = {name: lambda make=make: passed(make(), rows) for name, make in loaders.items()}
            times = interleave(cases, bench.few)
            value, spread = ratio(times, "files", "table")
            note = ", ".join(f"{name} {rate(1, median(times[name]))}" for name in times)
            what = (
                f"JPEG of one Arrow table / files by DataLoader, {'decoded' if decode else 'bytes'}, {workers} workers"
            )
            bench.report(what, value, "x", ">= 1.0", f"{note} ({spread})")
    shutil.rmtree(folder)


def wide(bench: Bench, width: int) -> tuple[Path, int]:
    """Write rows of a given size; their first two numbers identify them."""
    rows = (bench.pick(512, 256) << 20) // width
    path = bench.work / f"wide{width}.arrow"
    kind = pa.list_(pa.uint8(), width)
    with pa.ipc.new_file(str(path), pa.schema([("x", kind), ("label", pa.int64())])) as writer:
        for row in range(rows):
            values = np.full(width, row % 256, np.uint8)
            values[1] = row // 256 % 256
            array = pa.FixedSizeListArray.from_arrays(pa.array(values), width)
            writer.write_batch(pa.record_batch([array, pa.array([row])], names=["x", "label"]))
    return path, rows


def orders_part(bench: Bench) -> None:
    """Compare each order over rows of fixed width with a full shuffle, warm."""
    for title, width in WIDTHS.items():
        path, rows = wide(bench, width)
        names = ("full", "riffle", "corgipile", "sliding_window")
        loaders = {name: cp.Loader(path, batch_size=16, order=name, memory=MEMORY) for name in names}
        cases = {name: lambda loader=loader, rows=rows: _epoch(loader, rows) for name, loader in loaders.items()}
        times = interleave(cases, bench.few)
        for loader in loaders.values():
            loader.close()
        path.unlink()
        for name in names[1:]:
            value, spread = ratio(times, name, "full")
            note = f"full {rate(rows, median(times['full']))}, {name} {rate(rows, median(times[name]))} ({spread})"
            bench.report(f"time of {name} / full, rows of {title}", value, "x", "<= 1.05", note)


def _epoch(loader: cp.Loader, rows: int) -> float:
    seen, start = [], time.perf_counter()
    for batch in loader:
        right = (batch["x"][:, 0] == batch["label"] % 256) & (batch["x"][:, 1] == batch["label"] // 256 % 256)
        check(bool(right.all()), "labels came with other rows")
        seen.append(batch["label"].copy())
    seconds = time.perf_counter() - start
    check(bool((np.sort(np.concatenate(seen)) == np.arange(rows)).all()), "not every row came once")
    return seconds


def small_part(bench: Bench) -> None:
    """Measure batches of few rows, of 28 float32 and a label."""
    rows = bench.pick(200_000, 50_000)
    table = cp.open(pa.table({"x": _features(rows), "label": np.arange(rows)}))
    for form in ("numpy", "torch"):
        for size in (1, 2, 4, 8, 16):
            with cp.Loader(table, batch_size=size, format=form, memory="16MB") as loader:
                _rows_of(loader, rows)
                found = median([_rows_of(loader, rows) for _ in range(bench.few)])
            bench.report(f"Loader, {form}, batches of {size}", rows / found / 1e6, "M rows/s")


def _features(rows: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ones(28 * rows, np.float32)), 28)


def _rows_of(loader: cp.Loader, rows: int) -> float:
    seen, start = 0, time.perf_counter()
    for batch in loader:
        seen += len(batch["label"])
    seconds = time.perf_counter() - start
    check(seen == rows, f"{seen} rows of {rows} came")
    return seconds


def lengths_part(bench: Bench) -> None:
    """Compare streaming orders over rows of varying length with Riffle."""
    rows = bench.pick(400_000, 100_000)
    lengths = np.random.default_rng(0).integers(20, 400, rows)
    ends = np.append(0, np.cumsum(lengths)).astype(np.int32)
    data = pa.py_buffer(bytes(int(ends[-1])))
    text = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), data])
    path = bench.work / "lengths.arrow"
    with pa.ipc.new_file(str(path), pa.schema([("text", pa.binary()), ("label", pa.int64())])) as writer:
        writer.write_table(pa.table({"text": text, "label": np.arange(rows)}), max_chunksize=4096)
    loaders = {
        name: cp.Loader(path, batch_size=256, order=name, memory="16MB") for name in ("riffle", "sliding_window")
    }
    cases = {name: lambda loader=loader: _lengths(loader, lengths) for name, loader in loaders.items()}
    times = interleave(cases, bench.few)
    value, spread = ratio(times, "sliding_window", "riffle")
    note = ", ".join(f"{name} {rate(rows, median(times[name]))}" for name in times)
    bench.report("time of sliding_window / riffle, rows of varying length", value, "x", "<= 2", f"{note} ({spread})")


def _lengths(loader: cp.Loader, lengths: np.ndarray) -> float:
    seen, start = 0, time.perf_counter()
    for batch in loader:
        seen += len(batch["label"])
        check(len(batch["text"][0]) == lengths[batch["label"][0]], "labels came with other rows")
    seconds = time.perf_counter() - start
    check(seen == len(lengths), f"{seen} rows of {len(lengths)} came")
    return seconds


def tokens_part(bench: Bench) -> None:
    """Compare documents of 50 to 5,000 numbers with copies from a memory map in random order, and with LitData."""
    rows, random = bench.pick(200_000, 20_000), np.random.default_rng(0)
    ends = np.append(0, np.cumsum(random.integers(50, 5001, rows)))
    numbers = random.integers(0, 50_000, ends[-1], np.int32)
    plain, places, path = (bench.work / name for name in ("tokens.npy", "ends.npy", "tokens.arrow"))
    np.save(plain, numbers)
    np.save(places, ends)
    lists = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(numbers))
    with pa.ipc.new_file(str(path), pa.schema([("tokens", lists.type)])) as writer:
        writer.write_table(pa.table({"tokens": lists}), max_chunksize=2000)
    del numbers, lists
    loader = cp.Loader(path, batch_size=BATCH, memory=MEMORY, format="torch")
    cases = {"corgipile": lambda: _walk(loader, rows), "map": lambda: _walk(_by_hand(plain, ends, random), rows)}
    with ExitStack() as peers:
        with suppress(Skip):
            settings = {"tokens": str(plain), "ends": str(places), "batch": BATCH, "folder": str(bench.work / "lit")}
            peer = peers.enter_context(Peer("litdata_tokens", **settings))
            cases["litdata"] = lambda: peer.seconds(rows)
        times = interleave(cases, bench.few)
    for name, target in {"map": ">= 1.5", "litdata": ">= 2"}.items():
        if name in times:
            value, spread = ratio(times, name, "corgipile")
            note = f"{rate(rows, median(times['corgipile']))}; {name} {rate(rows, median(times[name]))} ({spread})"
            bench.report(f"documents of numbers: time of {name} / corgipile", value, "x", target, note)


def _by_hand(plain: Path, ends: np.ndarray, random: np.random.Generator) -> Iterator[list[torch.Tensor]]:
    numbers, order = np.load(plain, mmap_mode="r"), random.permutation(len(ends) - 1)
    for at in range(0, len(order), BATCH):
        yield [torch.from_numpy(numbers[ends[row] : ends[row + 1]].copy()) for row in order[at : at + BATCH]]


def _walk(batches: Any, rows: int) -> float:
    seen, start = 0, time.perf_counter()
    for batch in batches:
        seen += len(batch["tokens"] if isinstance(batch, dict) else batch)
    seconds = time.perf_counter() - start
    check(seen == rows, f"{seen} rows of {rows} came")
    return seconds


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("tokens", tokens_part)
    bench.part("images", images_part)
    bench.part("orders", orders_part)
    bench.part("small", small_part)
    bench.part("lengths", lengths_part)


if __name__ == "__main__":
    alone("torch_wide", main)
