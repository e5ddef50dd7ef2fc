"""PyTorch: a dataset that reads tables in any order; samplers and parallel fetching for datasets that stay theirs."""

from importlib.util import find_spec

from corgipile.errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("corgipile.torch needs PyTorch: pip install 'corgipile[torch]'")

from corgipile.torch.concurrent import Concurrent
from corgipile.torch.dataset import CorgiPileDataset
from corgipile.torch.sampler import BatchSampler

__all__ = ["BatchSampler", "Concurrent", "CorgiPileDataset"]
