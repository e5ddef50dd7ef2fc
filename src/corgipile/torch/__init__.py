"""PyTorch: a dataset that reads tables in any order; samplers and parallel fetching for datasets that stay theirs."""

from corgipile.torch.concurrent import Concurrent
from corgipile.torch.dataset import CorgiPileDataset
from corgipile.torch.sampler import BatchSampler

__all__ = ["BatchSampler", "Concurrent", "CorgiPileDataset"]
