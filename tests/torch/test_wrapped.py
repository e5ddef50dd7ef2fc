"""A dataset inside other code: its batches look there as they do without workers."""

import pyarrow as pa
import pytest
import torch
from torch.utils.data import ChainDataset, DataLoader, IterableDataset

from corgipile.torch import CorgiPileDataset

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
TEXT = ["a", "bb", "ccc", "dd"]
TOKENS = [[1], [2, 3], [4], [5, 6, 7]]
ROWS = [f"{text} {tokens}" for text, tokens in zip(TEXT, TOKENS, strict=True)]


class Wrapper(IterableDataset):
    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        yield from map(seen, self.inner)


class Subclass(CorgiPileDataset):
    def __iter__(self):
        yield from map(seen, super().__iter__())


def seen(batch):
    """Return what user code gets, checked where it gets it."""
    kinds = {name: (type(column), *sorted({type(row).__name__ for row in column})) for name, column in batch.items()}
    assert kinds == {"text": (list, "str"), "tokens": (list, "Tensor"), "x": (torch.Tensor, "Tensor")}, kinds
    return [f"{text} {row.tolist()}" for text, row in zip(batch["text"], batch["tokens"], strict=True)]


def made(kind=CorgiPileDataset, **settings):
    rows = pa.table({"text": TEXT, "tokens": TOKENS, "x": [1.0, 2.0, 3.0, 4.0]})
    return kind(rows, batch_size=4, **settings)


FORMS = {
    "wrapper": lambda: (Wrapper(made()), {}),
    "transform": lambda: (Wrapper(made(transform=dict)), {}),
    "chain": lambda: (ChainDataset([made(), made()]), {"collate_fn": seen}),
    "subclass": lambda: (made(Subclass), {}),
    "collate": lambda: (made(), {"collate_fn": seen}),
}


@pytest.mark.parametrize("form", FORMS)
def test_code_in_a_worker_gets_lists_and_tensors(form):
    dataset, settings = FORMS[form]()
    for batch in DataLoader(dataset, batch_size=None, num_workers=1, **settings):
        assert sorted(batch) == ROWS


def test_code_in_a_worker_of_a_forkserver_does_too():
    loader = DataLoader(Wrapper(made()), batch_size=None, num_workers=1, multiprocessing_context="forkserver")
    assert [sorted(batch) for batch in loader] == [ROWS]


def test_a_loader_of_its_own_still_sends_batches_packed():
    [batch] = DataLoader(made(), batch_size=None, num_workers=1)
    assert seen(batch)


def test_one_worker_serves_both_in_turn():
    dataset = made()
    loader = DataLoader(dataset, batch_size=None, num_workers=1, worker_init_fn=Peek(dataset))
    assert [seen(batch) for batch in loader]


class Peek:
    """Iterates over a dataset before its DataLoader does."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __call__(self, worker):
        seen(next(iter(self.dataset)))
