"""PyTorch integration: tables as datasets, and samplers and parallel fetching for map-style datasets."""

from importlib import import_module

from corgipile.errors import MissingExtra

try:
    import_module("torch")  # an installed PyTorch may fail to load
except ImportError as error:
    raise MissingExtra(f"corgipile.torch needs PyTorch: pip install 'corgipile[torch]' ({error})") from error

from corgipile.torch.concurrent import Concurrent
from corgipile.torch.dataset import CorgiPileDataset
from corgipile.torch.device import DeviceLoader
from corgipile.torch.elastic import ElasticLoader
from corgipile.torch.exchange import PartialExchange
from corgipile.torch.gradients import h_d_of_module
from corgipile.torch.linear import train
from corgipile.torch.sampler import BatchSampler

__all__ = [
    "BatchSampler",
    "Concurrent",
    "CorgiPileDataset",
    "DeviceLoader",
    "ElasticLoader",
    "PartialExchange",
    "h_d_of_module",
    "train",
]
