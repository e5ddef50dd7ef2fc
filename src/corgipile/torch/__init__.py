"""What a PyTorch training loop takes from corgipile."""

from corgipile.torch.concurrent import Concurrent

__all__ = ["Concurrent"]
