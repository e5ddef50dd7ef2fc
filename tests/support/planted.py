"""Loaders of row numbers, faultless or with one planted fault, to test audits."""

import numpy as np

ROWS, BATCH = 6_000, 50
LABELS = np.arange(ROWS) * 10 // ROWS


class Epochs:
    """A loader of given epochs of row numbers."""

    def __init__(self, *epochs, batch=BATCH):
        self.epochs, self.batch, self.ran = epochs, batch, 0

    def __iter__(self):
        ids = self.epochs[self.ran % len(self.epochs)]
        self.ran += 1
        for start in range(0, len(ids), self.batch):
            part = ids[start : start + self.batch]
            yield {"id": part, "label": LABELS[np.asarray(part) % ROWS]}


def shuffled(seed, rows=ROWS):
    return np.random.default_rng([7, seed]).permutation(rows)


def windowed(seed, window, rows=ROWS):
    """A shuffle queue: rows leave from random places of a window."""
    rng, held, out = np.random.default_rng([8, seed]), [], []
    for row in range(rows):
        held.append(row)
        if len(held) == window:
            at = rng.integers(window)
            held[at], held[-1] = held[-1], held[at]
            out.append(held.pop())
    rng.shuffle(held)
    return np.array(out + held)


def blocks(seed, size, rows=ROWS, within=True):
    rng = np.random.default_rng([9, seed])
    parts = [np.arange(block * size, (block + 1) * size) for block in rng.permutation(rows // size)]
    if within:
        for part in parts:
            rng.shuffle(part)
    return np.concatenate(parts)


def in_turn(*parts, batch=BATCH):
    """Batches of workers in turn."""
    cut = [[part[at : at + batch] for at in range(0, len(part), batch)] for part in parts]
    return np.concatenate([piece for turn in zip(*cut, strict=True) for piece in turn])


def two(make):
    return Epochs(make(0), make(1))


def copies(seed):
    return in_turn(shuffled(seed), shuffled(seed + 50), shuffled(seed + 90))


def local(seed):
    third = ROWS // 3
    return in_turn(*(worker * third + windowed(seed * 3 + worker, 200, third) for worker in range(3)))


def head_in_order(seed):
    return np.concatenate([np.arange(300), 300 + shuffled(seed, ROWS - 300)])


def tail_in_order(seed):
    return np.concatenate([shuffled(seed, ROWS - 300), np.arange(ROWS - 300, ROWS)])


def fixed_batches(seed):
    ids = shuffled(99).reshape(-1, BATCH)
    return ids[np.random.default_rng(seed).permutation(len(ids))].ravel()


def tilted(seed):
    """Epochs with the same order of blocks; each shuffles the rows within blocks."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(part) for part in shuffled(98).reshape(-1, 60)])


PLANTED = {
    "missing rows": lambda: two(lambda seed: shuffled(seed)[:-1234]),
    "repeated rows": lambda: two(lambda seed: np.concatenate([shuffled(seed), shuffled(seed + 5)[:77]])),
    "foreign rows": lambda: two(lambda seed: np.concatenate([shuffled(seed), [ROWS + 3]])),
    "dropped tail": lambda: Epochs(*(shuffled(seed)[: ROWS - ROWS % 70] for seed in range(2)), batch=70),
    "worker copies": lambda: two(copies),
    "identical epochs": lambda: Epochs(shuffled(0), shuffled(0)),
    "correlated epochs": lambda: two(tilted),
    "same batches": lambda: two(fixed_batches),
    "not shuffled": lambda: Epochs(np.arange(ROWS)),
    "not shuffled within blocks": lambda: two(lambda seed: blocks(seed, 40, within=False)),
    "unshuffled head": lambda: two(head_in_order),
    "unshuffled tail": lambda: two(tail_in_order),
    "biased window": lambda: two(lambda seed: windowed(seed, 600)),
    "worker-local buffers": lambda: two(local),
}


def alone(name):
    """Return the loaders of the ranks of a faulty run, and one of another seed or None."""
    if name == "rank imbalance":
        epochs = [shuffled(seed) for seed in range(2)]
        return [Epochs(*(ids[part] for ids in epochs)) for part in (slice(4000), slice(4000, None))], None
    if name == "correlated seeds":
        return [Epochs(shuffled(0), shuffled(1))], Epochs(shuffled(1), shuffled(2))
    return [PLANTED[name]()], None


HONEST = {
    "full": shuffled,
    "blocks of 20, ten in memory": lambda seed: np.concatenate(
        [np.random.default_rng(seed).permutation(part) for part in blocks(seed, 20).reshape(-1, 200)]
    ),
}
