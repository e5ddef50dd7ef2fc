"""Hashed text: seconds to Vowpal Wabbit's best validation accuracy minus 0.2 points, ours with defaults."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Bench, Peer, alone, median
from real import unpack

import corgipile as cp

CLOCK = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter
MARGIN, MOST_EPOCHS = 0.2, 10
GRID: list[dict[str, Any]] = [  # at as many places; Vowpal Wabbit's defaults with pairs of words first
    {},
    {"passes": 3},
    {"passes": 10},
    {"rate": 0.1},
    {"rate": 2.0},
    {"ngrams": 1},
    {"rate": 0.1, "passes": 10},
]
Split = tuple[pa.Table, pa.Table]


def sst2(bench: Bench) -> Split:
    """Return phrases of film reviews."""

    def table(name: str) -> pa.Table:
        rows = [line.rsplit("\t", 1) for line in unpack(bench.data, f"sst2/{name}.tsv.gz").decode().splitlines()]
        rows = [row for row in rows if len(row) == 2 and row[1].strip() in ("0", "1")]
        return pa.table({"text": [row[0] for row in rows], "label": pa.array([int(row[1]) for row in rows], pa.int8())})

    return table("train"), table("dev")


def chain(bench: Bench) -> Split:
    """Return texts of 20 to 120 words by Zipf's law, mostly predicted by the word before; some decide."""
    rng = np.random.default_rng(0)
    count, vocabulary, longest = bench.pick(120_000, 10_000), 100_000, 120
    share = np.cumsum(1 / (np.arange(vocabulary) + 2.7) ** 1.05)  # Zipf's law as Mandelbrot has it
    share /= share[-1]
    followers = np.searchsorted(share, rng.random((vocabulary, 12)))
    words = np.empty((count, longest), np.int64)
    words[:, 0] = np.searchsorted(share, rng.random(count))
    for at in range(1, longest):
        usual = followers[words[:, at - 1], rng.integers(0, 12, count)]
        words[:, at] = np.where(rng.random(count) < 0.7, usual, np.searchsorted(share, rng.random(count)))
    there = np.arange(longest) < rng.integers(20, longest + 1, count)[:, None]
    weight = rng.normal(size=vocabulary) * (rng.random(vocabulary) < 0.1)
    weight[:50] = 0
    score = (weight[words] * there).sum(axis=1)
    pairs = words[:, :-1] * vocabulary + words[:, 1:]
    told = ((pairs * 2_654_435_761 >> 8) % 20 - 9.5) * ((pairs * 40_503 >> 4) % 20 == 0) / 6
    score += (told * there[:, 1:]).sum(axis=1)
    label = score + rng.logistic(0, 0.2 * score.std(), count) > np.median(score)
    names = np.array([f"w{number:x}" for number in range(vocabulary)])
    said = [" ".join(names[row[kept]]) for row, kept in zip(words, there, strict=True)]
    table = pa.table({"text": said, "label": pa.array(label.astype(np.int8))})
    return table.slice(0, count * 9 // 10), table.slice(count * 9 // 10)


CORPORA: dict[str, Callable[[Bench], Split]] = {"sst2": sst2, "chain": chain}


def lines(table: pa.Table) -> str:
    """Return rows in Vowpal Wabbit's format: words are split and in lower case already."""
    texts, labels = table["text"].to_pylist(), table["label"].to_pylist()
    found = (" ".join(re.findall(r"\w+", text.lower())) for text in texts)
    return "".join(f"{1 if label else -1} |t {words}\n" for label, words in zip(labels, found, strict=True))


def write(split: Split, place: Path) -> None:
    """Write texts for ours and for the peer, in one shuffled order."""
    train = split[0].take(pa.array(np.random.default_rng(0).permutation(len(split[0]))))
    pq.write_table(train, f"{place}.parquet", row_group_size=20_000)
    for name, rows in (("train", train), ("test", split[1])):
        Path(f"{place}-{name}.vw").write_text(lines(rows))
        np.save(f"{place}-{name}.npy", rows["label"].to_numpy())


def ours(place: Path, epochs: int) -> float:
    """Return the seconds of a training with defaults, from the file to the model."""
    start = CLOCK()
    cp.train(f"{place}.parquet", text="text", epochs=epochs)
    return CLOCK() - start


def part(bench: Bench, name: str) -> None:
    """Compare on one corpus."""
    split, place = CORPORA[name](bench), bench.work / f"text-{name}"
    write(split, place)
    with Peer("wabbit", path=str(place)) as peer:
        tried = [(peer.ask(**settings), settings) for settings in GRID[: 2 if bench.quick else None]]
        best, settings = max(tried, key=lambda one: (one[0]["score"], -one[0]["seconds"]))
        first = tried[0][0]
        bench.report(f"{name}: vw, defaults and --ngram 2", first["score"], "points", "", f"{first['seconds']:.3g} s")
        bench.report(f"{name}: vw, tuned", best["score"], "points", "", f"{best['seconds']:.3g} s; {settings}")
        goal = best["score"] - MARGIN
        model = cp.train(f"{place}.parquet", text="text", epochs=MOST_EPOCHS, test=split[1])
        scores = [100 * record["test_accuracy"] for record in model.history]
        most = max(scores)
        bench.report(
            f"{name}: best of vw - ours with defaults", best["score"] - most, "points", "<= 0.3", f"{most:.2f}"
        )
        epochs = next((at for at, score in enumerate(scores, 1) if score >= goal), None)
        if epochs is None:
            bench.report(f"{name}: epochs to {goal:.2f}", np.inf, "epochs", f"<= {MOST_EPOCHS}")
            return
        enough = [settings for found, settings in tried if found["score"] >= goal]
        spent = [(ours(place, epochs), *(peer.ask(**one)["seconds"] for one in enough)) for _ in range(bench.few)]
    mine, *theirs = (median(seconds) for seconds in zip(*spent, strict=True))
    fastest = min(theirs)
    note = f"{mine:.3g} s here, {epochs} epochs; {fastest:.3g} s there, {enough[theirs.index(fastest)] or 'defaults'}"
    bench.report(f"{name}: seconds to {goal:.2f}: ours / vw", mine / fastest, "x", "<= 1", note)
    size = sum(len(text) for text in split[0]["text"].to_pylist()) / 1e6
    bench.report(f"{name}: text read, hashed and learnt in an epoch", size * epochs / mine, "MB/s")


def main(bench: Bench) -> None:
    """Run all parts."""
    for name in CORPORA:
        bench.part(name, lambda bench, name=name: part(bench, name))


if __name__ == "__main__":
    alone("text", main)
