"""CorgiPile (Fig. 20): read rate of blocks in random order by block size, against sequential reading.

    python bench/papers/blocks.py [--scale 4] [--save]

The file is dropped from the page cache before each run, verified by mincore. The paper uses one reading thread, our
kernel four.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import figures
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pagecache import drop, read_plainly

SIZE, ROUNDS = 256 << 20, 5
BLOCKS = [64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 10 << 20, 16 << 20]
THREADS = (1, 4)


def write(path: Path, size: int) -> None:
    """Write a file of incompressible bytes."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(0, size, 1 << 24):
            file.write(rng.bytes(1 << 24))


def rate(path: Path, threads: int, block: int, *, shuffled: bool) -> float:
    """Return megabytes per second of one cold reading."""
    drop(path)
    return path.stat().st_size / 1e6 / read_plainly(path, threads=threads, chunk=block, shuffled=shuffled)


def measure(path: Path) -> dict[str, dict[str, float]]:
    """Return the median rate of each block size and way of reading; the ways alternate."""
    found: dict[tuple[int, str], list[float]] = {}
    for _ in range(ROUNDS):
        for block in BLOCKS:
            for threads in THREADS:
                for name, shuffled in (("in sequence", False), ("random", True)):
                    key = block, f"{threads} thread{'s' * (threads > 1)}, {name}"
                    found.setdefault(key, []).append(rate(path, threads, block, shuffled=shuffled))
    rates: dict[str, dict[str, float]] = {}
    for (block, way), values in found.items():
        rates.setdefault(way, {})[str(block)] = statistics.median(values)
    return rates


def main() -> None:
    """Measure all sizes; print the results, and save them if requested."""
    given = figures.arguments(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory(prefix="corgipile-blocks-") as work:
        path = Path(work) / "bytes"
        write(path, SIZE // given.scale)
        rates = measure(path)
    lines = figures.head(["block, KB", *(f"{way}, MB/s" for way in rates), "random / in sequence, 1 thread", "4"])
    for block in map(str, BLOCKS):
        shares = [
            f"{rates[f'{one}, random'][block] / rates[f'{one}, in sequence'][block]:.2f}"
            for one in ("1 thread", "4 threads")
        ]
        cells = [f"{int(block) >> 10}", *(f"{found[block]:.0f}" for found in rates.values()), *shares]
        lines.append(f"| {' | '.join(cells)} |")
    print("\n".join(lines))
    if given.save:
        path = figures.save("blocks", rates, lines)
        curves = {way: list(found.values()) for way, found in rates.items()}
        sizes = [block / 1e6 for block in BLOCKS]
        figures.draw({("a cold file", "blocks in random order"): curves}, path, across="block, MB", up="MB/s", xs=sizes)


if __name__ == "__main__":
    main()
