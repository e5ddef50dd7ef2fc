"""PyTorch integration: tables as datasets, and samplers and parallel fetching for map-style datasets."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from corgipile.torch.sampler import BatchSampler

if TYPE_CHECKING:
    from corgipile.torch.linear import train

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


def __getattr__(name: str) -> Any:
    """Import `train` on first use, for the learners take as long to import as the rest."""
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("corgipile.torch.linear").train
