"""A small transformer on text sorted by label, trained by every order: accuracy on held-out sentences.

Learns the mood of made-up reviews, in which "not", "hardly" and "but" matter; ``--data DIR --rows 10000`` takes SST-2
from ``DIR/sst2``. The table holds the text: words become numbers in the dataset's ``transform``.
"""

import gzip
import random
import tempfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from comparing import Task, compare, learning, options
from torch import Tensor, nn

import corgipile as cp

WORDS, LENGTH = 2048, 24  # hashed words, words of a sentence; word 0 is none
GOOD = ["good", "fine", "moving", "bright", "funny", "warm", "clever", "lovely", "tender", "honest"]
BAD = ["bad", "dull", "clumsy", "noisy", "shallow", "tired", "cold", "stupid", "lazy", "grim"]
THINGS = ["film", "story", "plot", "cast", "music", "ending", "script", "camera", "dialogue", "scene"]
TURNS = ["not", "hardly", "never"]
EXTRAS = ["the", "was", "really", "quite", "so", "this", "and", "in", "all", "somehow", "throughout"]


class Mood(nn.Module):
    """Embeds words and places, attends twice, and judges the mean of all words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.places = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.attend = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.judge = nn.Linear(width, 2)

    def forward(self, words: Tensor) -> Tensor:
        """Return two scores a sentence."""
        there = words != 0
        seen = self.attend(self.words(words) + self.places, src_key_padding_mask=~there)
        return self.judge((seen * there[:, :, None]).sum(1) / there.sum(1, keepdim=True))


def tensors(batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Turn a batch of sentences into numbers of words, and labels."""
    words = torch.zeros(len(batch["text"]), LENGTH, dtype=torch.long)
    for row, text in enumerate(batch["text"]):
        found = [1 + zlib.crc32(word.encode()) % (WORDS - 1) for word in text.split()[:LENGTH]] or [1]
        words[row, : len(found)] = torch.tensor(found)
    return words, batch["label"].long()


def made(rows: int, seed: int) -> pa.Table:
    """Make up reviews, half of them good."""
    choose = random.Random(seed)  # noqa: S311  # nothing secret here

    def part(good: bool) -> list[str]:
        turned = choose.random() < 0.3
        word = choose.choice(GOOD if good != turned else BAD)
        extras = choose.sample(EXTRAS, 3)
        return [*extras[:2], choose.choice(THINGS), *([choose.choice(TURNS)] if turned else []), word, extras[2]]

    labels = [choose.randrange(2) for _ in range(rows)]
    texts = []
    for label in labels:
        before = [*part(not label), "but"] if choose.random() < 0.3 else []  # what follows "but" is what is meant
        texts.append(" ".join([*before, *part(bool(label))]))
    return pa.table({"text": texts, "label": pa.array(labels, pa.int32())})


def sst2(path: Path, rows: int) -> pa.Table:
    """Read sentences and labels, at most ``rows``."""
    with gzip.open(path, "rt") as file:
        lines = [line.rstrip("\n").rsplit("\t", 1) for line in file][1:]
    lines = lines[:: max(1, len(lines) // rows)][:rows]
    return pa.table(
        {"text": [text for text, _ in lines], "label": pa.array([int(mood) for _, mood in lines], pa.int32())}
    )


def main() -> None:
    """Compare the orders."""
    settings = options(__doc__, rows=6000, epochs=3, width=32, batch=64, rate=3e-3)
    if settings.data is None:
        train, test = made(settings.rows, 1), made(1000, 2)
    else:
        train, test = (sst2(settings.data / "sst2" / f"{part}.tsv.gz", settings.rows) for part in ("train", "dev"))
    with tempfile.TemporaryDirectory(prefix="corgipile-transformer-") as folder:
        paths = Path(folder) / "train.arrow", Path(folder) / "test.arrow"
        cp.convert(train.sort_by("label"), paths[0])
        cp.convert(test, paths[1])
        compare(Task(*paths, len(train), partial(Mood, settings.width), tensors, *learning(settings)))


if __name__ == "__main__":
    main()
