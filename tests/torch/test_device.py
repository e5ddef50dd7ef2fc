"""Batches that a thread copies ahead of the loop: the same, in the same order, and states that know its place."""

import subprocess
import sys
from collections import UserDict, defaultdict
from typing import NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader

import corgipile as cp
from corgipile.errors import BadArgument
from corgipile.orders import Riffle
from corgipile.torch import CorgiPileDataset, DeviceLoader

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


class Pair(NamedTuple):
    """A batch of a kind of its own."""

    x: torch.Tensor
    y: list


def make(table, **settings):
    return CorgiPileDataset(table, **{"order": Riffle(block=20, buffer=160), "batch_size": 64, "seed": 1, **settings})


def rows_of(batches):
    return [batch["row"].tolist() for batch in batches]


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_epochs_are_those_of_the_dataset(path, workers):
    data, plain = make(path), make(path)
    batches = data if workers is None else DataLoader(data, batch_size=None, num_workers=workers)
    loader = DeviceLoader(batches, "cpu")
    apart = DataLoader(plain, batch_size=None, num_workers=workers or 0)
    for _ in range(2):
        assert rows_of(loader) == rows_of(apart)
    assert len(loader) == len(data)


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("got", [0, 1, 5, 16])
def test_a_state_is_that_of_the_loop(path, workers, got):
    def loader():
        data = make(path)
        return DeviceLoader(data if workers is None else DataLoader(data, batch_size=None, num_workers=workers), "cpu")

    whole, first, later = loader(), loader(), loader()
    expected = rows_of(whole) + rows_of(whole)
    came, batches = [], iter(first)
    for _ in range(got):
        came += rows_of([next(batches)])
    state = first.state_dict()
    batches.close()
    later.load_state_dict(state)
    assert came + rows_of(later) + (rows_of(later) if got < 16 else []) == expected
    assert len(expected) == 32


def test_a_dataset_does_not_give_a_state_that_is_ahead(path):
    data = make(path)
    batches = iter(DeviceLoader(data, "cpu"))
    next(batches)
    with pytest.raises(BadArgument, match=r"DeviceLoader.*state_dict\(batches=...\)"):
        data.state_dict()
    batches.close()
    next(iter(data))  # an iteration of its own is not
    assert data.state_dict()["epoch"] == 1


def test_batches_that_begin_with_the_first_of_them(path):
    class Late:
        """Begins the iteration of its dataset when the first batch is asked for."""

        def __init__(self, dataset):
            self.dataset = dataset

        def __iter__(self):
            yield from self.dataset

    data = make(path)
    loader = DeviceLoader(Late(data), "cpu")
    for _ in range(2):
        batches = iter(loader)
        next(batches)
        with pytest.raises(BadArgument, match=r"DeviceLoader.*state_dict\(batches=...\)"):
            data.state_dict()
        batches.close()


def test_rows_of_a_collating_loader_count(path):
    def loader():
        return DeviceLoader(DataLoader(make(path, batch_size=None), batch_size=50), "cpu")

    expected, first, later = rows_of(loader()), loader(), loader()
    batches = iter(first)
    came = rows_of([next(batches), next(batches)])
    state = first.state_dict()
    batches.close()
    later.load_state_dict(state)
    assert came + rows_of(later) == expected


def test_epochs_can_be_set(path):
    loader, plain = DeviceLoader(make(path), "cpu"), make(path)
    loader.set_epoch(3)
    plain.set_epoch(3)
    assert rows_of(loader) == rows_of(plain)


def test_one_batch_is_fetched_ahead():
    made = []

    class Batches:
        def __iter__(self):
            for number in range(100):
                made.append(number)
                yield torch.tensor(number)

    running = iter(DeviceLoader(Batches(), "cpu"))
    assert int(next(running)) == 0
    assert made == [0, 1]


def test_all_kinds_of_batches_are_moved():
    class Movable:
        device = None

        def to(self, device, **_):
            moved = Movable()
            moved.device = device
            return moved

    one = torch.arange(3)
    batch = {"pair": Pair(one, [one, "text"]), "plain": (1, b"x", None), "own": Movable()}
    (got,) = DeviceLoader([batch], "cpu")
    assert isinstance(got["pair"], Pair)
    assert torch.equal(got["pair"].x, one)
    assert got["pair"].y[1] == "text"
    assert got["plain"] == (1, b"x", None)
    assert got["own"].device == torch.device("cpu")
    (meta,) = DeviceLoader([batch], "meta")
    assert meta["pair"].x.device.type == meta["pair"].y[0].device.type == "meta"


def test_batches_keep_their_kind():
    class Encoded(UserDict):
        """As tokenizers return."""

    packed = torch.nn.utils.rnn.pack_sequence([torch.arange(3), torch.arange(2)])
    lists, encoded = defaultdict(list, x=torch.arange(2)), Encoded(x=torch.arange(2))
    encoded.said = "beside"
    for device in ("cpu", "meta"):
        (got,) = DeviceLoader([{"packed": packed, "lists": lists, "encoded": encoded}], device)
        assert got["packed"].data.device.type == device
        assert got["packed"].batch_sizes.device.type == "cpu"
        assert isinstance(got["lists"], defaultdict)
        assert got["lists"]["none"] == []
        assert isinstance(got["encoded"], Encoded)
        assert got["encoded"].said == "beside"
        assert got["encoded"]["x"].device.type == got["lists"]["x"].device.type == device
    assert encoded["x"].device.type == "cpu"


def test_an_iteration_may_go_on_after_a_state_is_loaded(path):
    loader = DeviceLoader(make(path), "cpu")
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert len(rows_of(batches)) == 15
    assert loader.state_dict() == state
    assert len(rows_of(loader)) == 15


def test_an_error_comes_where_its_batch_would():
    def bad(batch):
        if 0 in batch["row"]:
            raise RuntimeError("no such picture")
        return batch

    table = cp.open({"row": list(range(100))})
    data = make(table, order="no_shuffle", batch_size=10, transform=lambda batch: bad({"row": 95 - batch["row"]}))
    batches = iter(DeviceLoader(data, "cpu"))
    assert len([next(batches) for _ in range(9)]) == 9
    with pytest.raises(RuntimeError, match="no such picture"):
        next(batches)


def test_one_that_is_held_when_python_ends_says_nothing(path):
    code = (
        "from corgipile.torch import CorgiPileDataset, DeviceLoader\n"
        f"batches = iter(DeviceLoader(CorgiPileDataset({path!r}, batch_size=10), 'cpu'))\n"
        "print(len(next(batches)['row']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("10\n", "")


def test_what_cannot_be_is_said(path):
    with pytest.raises(BadArgument, match=r"device .*got 'gpu'"):
        DeviceLoader(make(path), "gpu")
    with pytest.raises(BadArgument, match=r"one of .* CUDA devices"):
        DeviceLoader(make(path), "cuda:99")
    with pytest.raises(BadArgument, match="CorgiPileDataset, which takes"):
        DeviceLoader(cp.Loader(path), "cpu")
    with pytest.raises(BadArgument, match="got list"):
        DeviceLoader([], "cpu").state_dict()
    with pytest.raises(TypeError, match="len"):
        len(DeviceLoader(iter([]), "cpu"))
