"""PyTorch: a dataset that reads tables in any order, and batch samplers for datasets that stay what they are."""

from corgipile.torch.dataset import CorgiPileDataset

__all__ = ["CorgiPileDataset"]
