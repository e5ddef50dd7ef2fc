"""h_D from a PyTorch module's per-row gradients, projected to a few numbers for modules of any size."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch.func import functional_call, grad, vmap

from corgipile.errors import BadArgument
from corgipile.quality import HD, h_d_of_gradients
from corgipile.sizes import whole

__all__ = ["h_d_of_module"]

MAX_FOLDED = 1 << 13  # numbers of a gradient that are projected at most
GROUPS = 8  # groups of projected numbers; their spread estimates the projection's error
MAX_GRADIENT_NUMBERS = 1 << 24  # numbers of gradients in memory at most
Batch = tuple[Any, Any]


def h_d_of_module(
    table: Any,
    block: int,
    module: torch.nn.Module,
    loss: Callable[[Any, Any], torch.Tensor],
    batch: Callable[[pa.Table], Batch],
    *,
    numbers: int = 512,
    blocks: int = 300,
    rows: int = 4,
    seed: int = 0,
) -> HD:
    """Estimate h_D from the per-row gradients of a module's loss at its current weights.

    ``torch.func`` computes the gradients. Large ones are folded to 8,192 numbers with random signs (Charikar, Chen and
    Farach-Colton, "Finding frequent items in data streams", 2002), then projected to ``numbers`` by random signs
    (Achlioptas, "Database-friendly random projections", 2003). Both preserve inner products without bias; groups of
    the numbers estimate what they add to the standard error. h_D depends on the weights: call it at the beginning of a
    training, during it and at its end.

    Args:
        table: A source for `corgipile.open`.
        block: Rows per block; a table that is encoded in many large units has larger blocks.
        module: The module. It is evaluated as under ``module.eval()`` and restored; weights that require no gradient
            are left out.
        loss: A function of the module's output and the target of a one-row batch.
        batch: Returns the module's input and the target, tensors of equally many rows, from a ``pyarrow.Table``.
        numbers: Size of a projected gradient, at least 8.
        blocks: Number of blocks to sample; all if there are fewer.
        rows: Rows to sample in each block; all if it has fewer.
        seed: Seed of the sample and the projection.

    Raises:
        BadArgument: The module has no trainable weights, a batch has a different row count, or a gradient is not
            finite.

    Example:
        >>> table = {"x": np.repeat(np.float32([1, 2, 3]), 20), "y": np.repeat(np.float32([0, 1, 5]), 20)}
        >>> batch = lambda some: tuple(torch.tensor(some[name].to_numpy())[:, None] for name in ("x", "y"))
        >>> found = h_d_of_module(table, 10, torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, batch)
        >>> round(found.value, 3)
        10.0
    """
    numbers = GROUPS * -(-whole(numbers, "numbers", GROUPS) // GROUPS)
    sketch = _Sketch(module, loss, batch, numbers, whole(seed, "seed"))
    with _eval_mode(module):
        return h_d_of_gradients(table, block, sketch, blocks=blocks, rows=rows, seed=seed, groups=GROUPS)


class _Sketch:
    """Computes projected gradients of rows."""

    def __init__(
        self, module: torch.nn.Module, loss: Callable[[Any, Any], torch.Tensor], batch: Callable[[pa.Table], Batch],
        numbers: int, seed: int,
    ) -> None:  # fmt: skip
        self._batch = batch
        self._weights = {name: tensor.detach() for name, tensor in module.named_parameters() if tensor.requires_grad}
        self._size = sum(tensor.numel() for tensor in self._weights.values())
        if not self._size:
            raise BadArgument("module must have weights that require a gradient")
        fixed = {name: tensor.detach() for name, tensor in module.named_parameters() if not tensor.requires_grad}
        fixed |= {name: tensor.detach() for name, tensor in module.named_buffers()}

        def row_loss(weights: dict[str, torch.Tensor], inputs: Any, target: Any) -> torch.Tensor:
            row, row_target = _with_rows(inputs), _with_rows(target)
            return loss(functional_call(module, {**weights, **fixed}, (row,)), row_target).sum()

        self._gradients = vmap(grad(row_loss), in_dims=(None, 0, 0))
        drawn = torch.Generator().manual_seed(seed % (1 << 63))
        self._width = min(self._size, MAX_FOLDED)
        self._targets = {name: self._target_signs(tensor, drawn) for name, tensor in self._weights.items()}
        self._mix = _signs((self._width, numbers), drawn).numpy().astype(np.float64)

    def _target_signs(self, weights: torch.Tensor, drawn: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the index that each number of a gradient is added to, and its sign."""
        count = weights.numel()
        goals = torch.randint(self._width, (count,), generator=drawn)
        return goals.to(weights.device), _signs((count,), drawn).to(weights)

    def __call__(self, rows: pa.Table) -> npt.NDArray[np.float64]:
        """Return projected gradients, float64[rows, numbers]."""
        inputs, target = self._batch(rows)
        for what, tensor in (("input", inputs), ("target", target)):
            if not isinstance(tensor, torch.Tensor) or not tensor.ndim or len(tensor) != len(rows):
                shape = tuple(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
                raise BadArgument(f"batch= must return an {what} tensor of {len(rows)} rows, got {shape}")
        step = max(1, MAX_GRADIENT_NUMBERS // self._size)
        parts = [self._project(inputs[at : at + step], target[at : at + step]) for at in range(0, len(rows), step)]
        gradients = np.concatenate(parts)
        if not np.isfinite(gradients).all():
            raise BadArgument("gradients must be finite, got NaN or infinity: check weights, inputs and targets")
        return gradients

    def _project(self, inputs: torch.Tensor, target: torch.Tensor) -> npt.NDArray[np.float64]:
        gradients = {
            name: tensor.reshape(len(inputs), -1)
            for name, tensor in self._gradients(self._weights, inputs, target).items()
        }
        if self._size == self._width:
            folded = torch.cat(list(gradients.values()), dim=1).to(torch.float64)
        else:
            folded = torch.zeros(len(inputs), self._width, dtype=torch.float64, device=inputs.device)
            for name, tensor in gradients.items():
                goals, signs = self._targets[name]
                folded.index_add_(1, goals, (tensor * signs).to(torch.float64))
        projected: npt.NDArray[np.float64] = folded.cpu().numpy() @ self._mix
        return projected


def _signs(shape: tuple[int, ...], drawn: torch.Generator) -> torch.Tensor:
    return torch.randint(2, shape, generator=drawn) * 2 - 1


def _with_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a row as a batch of size 1."""
    return tensor.unsqueeze(0)


@contextmanager
def _eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Switch a module to evaluation: a row's gradient must not depend on other rows or on chance."""
    training = {name: submodule.training for name, submodule in module.named_modules()}
    module.eval()
    try:
        yield
    finally:
        for name, submodule in module.named_modules():
            submodule.training = training[name]
