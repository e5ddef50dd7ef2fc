"""Tables in the formats that people have: shuffled epochs against the formats' own readers in storage order."""

import io
import tarfile
import time
from pathlib import Path

import numpy as np
from common import Bench, Peer, alone, check, interleave, median, rate, ratio
from torch.utils.data import DataLoader

from corgipile import quality
from corgipile.torch import CorgiPileDataset

BATCH, MEMORY, CLASSES = 64, "64MB", 10
JPEG, SHARD = 56_000, 500  # bytes of an image, about, and samples of a shard


def shards(folder: Path, rows: int) -> str:
    """Write shards of images, sorted by class, and return their pattern."""
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
    """JPEG shards, warm: rows per second and deff of an epoch; theirs in storage order, with no shuffle buffer."""
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


def main(bench: Bench) -> None:
    """Run all parts."""
    bench.part("webdataset", webdataset_part)


if __name__ == "__main__":
    alone("tables", main)
