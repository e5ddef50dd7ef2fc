"""TFRecord files of Examples, shuffled, decoded and batched as tensors, against the tfrecord package."""

import sys

import numpy as np
from common import HERE, Bench, Peer, alone, check, interleave, median, rate, ratio, walk

import corgipile as cp
from corgipile import quality

sys.path.insert(0, str(HERE.parent / "tests" / "support"))
from records import examples

BATCH, FEATURES, CLASSES = 256, 128, 10
QUEUE = 10_000  # rows of the package's shuffle queue, and of our memory
MEMORY = QUEUE * (4 * FEATURES + 8)


def label_deff(loader: cp.Loader, rows: int) -> float:
    """Measure deff of an epoch, after checking that all rows came."""
    labels = np.concatenate([batch["label"].numpy().copy() for batch in loader])
    expected = np.bincount(np.arange(rows) * CLASSES // rows)
    check(bool((np.bincount(labels) == expected).all()), "the labels are not those of the table")
    return quality.deff(labels, BATCH)


def warm_part(bench: Bench) -> None:
    """Compare label-sorted Examples of a warm file."""
    rows = bench.pick(200_000, 50_000)
    path, out = examples(bench.work, rows, FEATURES, CLASSES), bench.work / "labels.npy"
    orders = {"Riffle": cp.orders.Riffle(), "Riffle, balanced": cp.orders.Riffle(balance="label")}
    with Peer("tfrecord", path=str(path), index=f"{path}.idx", batch=BATCH, queue=QUEUE) as peer:
        peer.ask(labels=str(out))
        theirs = quality.deff(np.load(out), BATCH)
        loaders = {
            name: cp.Loader(cp.open(path), batch_size=BATCH, order=order, memory=MEMORY, format="torch")
            for name, order in orders.items()
        }
        deffs = {name: label_deff(loader, rows) for name, loader in loaders.items()}
        cases = {name: lambda loader=loader: walk(loader, rows) for name, loader in loaders.items()}
        times = interleave({"peer": lambda: peer.seconds(rows), **cases}, bench.few)
        for loader in loaders.values():
            loader.close()
    for name, deff in deffs.items():
        value, spread = ratio(times, "peer", name)
        note = f"tfrecord {rate(rows, median(times['peer']))}; ours {rate(rows, median(times[name]))} ({spread})"
        bench.report(f"Loader ({name}) / tfrecord, queue of {QUEUE:,} of {rows:,} rows", value, "x", ">= 3", note)
        share = max(deff - 1, 0) / (theirs - 1)
        note = f"deff: tfrecord {theirs:.1f}, ours {deff:.2f}"
        bench.report(f"excess of deff, {name} / tfrecord", share, "x", "<= 0.1", note)


def decode_part(bench: Bench) -> None:
    """Compare the same rows in storage order, both unshuffled: the cost of decoding."""
    rows = bench.pick(200_000, 50_000)
    path = examples(bench.work, rows, FEATURES, CLASSES)
    with (
        Peer("tfrecord", path=str(path), index=f"{path}.idx", batch=BATCH, queue=None) as peer,
        cp.Loader(cp.open(path), batch_size=BATCH, order="no_shuffle", format="torch") as loader,
    ):
        times = interleave({"peer": lambda: peer.seconds(rows), "ours": lambda: walk(loader, rows)}, bench.few)
    value, spread = ratio(times, "peer", "ours")
    note = f"tfrecord {rate(rows, median(times['peer']))}; ours {rate(rows, median(times['ours']))} ({spread})"
    bench.report("Loader (NoShuffle) / tfrecord without its queue", value, "x", "", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("warm", warm_part)
    bench.part("decode", decode_part)


if __name__ == "__main__":
    alone("torch_tfrecord", main)
