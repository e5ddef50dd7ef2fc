"""PyTorch: a dataset that reads tables in any order, and batch samplers for datasets that stay what they are."""

from corgipile.torch.dataset import CorgiPileDataset
from corgipile.torch.sampler import BatchSampler

__all__ = ["BatchSampler", "CorgiPileDataset"]
