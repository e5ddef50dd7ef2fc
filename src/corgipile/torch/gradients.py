"""h_D by the gradients of a PyTorch module: each row's own, projected to a few numbers whatever the module's size."""

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

FOLDED = 1 << 13  # numbers of a gradient, at most, that are projected
GROUPS = 8  # of the projected numbers, whose spread says what the projection adds to the error
AT_ONCE = 1 << 24  # numbers of gradients in memory
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
    """Estimate h_D by the gradients of a module's loss, each row's own, as they are at its weights now.

    Gradients come of ``torch.func``. Those of many numbers are folded to 8,192, each added to one of these with a
    random sign (Charikar, Chen and Farach-Colton, "Finding frequent items in data streams", 2002); random signs then
    make few numbers of them (Achlioptas, "Database-friendly random projections", 2003). Both keep inner products
    without bias, and what they add to the standard error is seen between groups of the numbers. h_D is that of the
    weights as they are: ask at the beginning of a training, on its way and at its end.

    Args:
        table: What `corgipile.open` takes.
        block: Rows of a block; a table that is encoded in many large units has larger ones.
        module: The module. It is evaluated as ``module.eval()`` would, and left as it was; weights that require no
            gradient are left out.
        loss: Of the module's output and the target of a batch of one row.
        batch: Makes the module's input and the target, tensors of as many rows, of a ``pyarrow.Table``.
        numbers: How many numbers a gradient becomes, at least 8.
        blocks: Blocks to look at, all if there are no more.
        rows: Rows to look at in each; all if it has no more.
        seed: Decides which, and the projection.

    Raises:
        BadArgument: The module has nothing to learn, a batch has other rows, or a gradient is no finite number.

    Example:
        >>> table = {"x": np.repeat(np.float32([1, 2, 3]), 20), "y": np.repeat(np.float32([0, 1, 5]), 20)}
        >>> batch = lambda some: tuple(torch.tensor(some[name].to_numpy())[:, None] for name in ("x", "y"))
        >>> found = h_d_of_module(table, 10, torch.nn.Linear(1, 1), torch.nn.functional.mse_loss, batch)
        >>> round(found.value, 3)
        10.0
    """
    numbers = GROUPS * -(-whole(numbers, "numbers", GROUPS) // GROUPS)
    sketch = _Sketch(module, loss, batch, numbers, whole(seed, "seed"))
    with _evaluated(module):
        return h_d_of_gradients(table, block, sketch, blocks=blocks, rows=rows, seed=seed, groups=GROUPS)


class _Sketch:
    """Makes projected gradients of rows."""

    def __init__(
        self, module: torch.nn.Module, loss: Callable[[Any, Any], torch.Tensor], batch: Callable[[pa.Table], Batch],
        numbers: int, seed: int,
    ) -> None:  # fmt: skip
        self._batch = batch
        self._weights = {name: one.detach() for name, one in module.named_parameters() if one.requires_grad}
        self._size = sum(one.numel() for one in self._weights.values())
        if not self._size:
            raise BadArgument("the module has no weights that require a gradient")
        fixed = {name: one.detach() for name, one in module.named_parameters() if not one.requires_grad}
        fixed |= {name: one.detach() for name, one in module.named_buffers()}

        def of_row(weights: dict[str, torch.Tensor], given: Any, target: Any) -> torch.Tensor:
            one, wanted = _with_rows(given), _with_rows(target)
            return loss(functional_call(module, {**weights, **fixed}, (one,)), wanted).sum()

        self._gradients = vmap(grad(of_row), in_dims=(None, 0, 0))
        drawn = torch.Generator().manual_seed(seed % (1 << 63))
        self._width = min(self._size, FOLDED)
        self._goals = {name: self._goal(one, drawn) for name, one in self._weights.items()}
        self._mix = _signs((self._width, numbers), drawn).numpy().astype(np.float64)

    def _goal(self, weights: torch.Tensor, drawn: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where the numbers of a gradient are added, and with which signs."""
        count = weights.numel()
        goals = torch.randint(self._width, (count,), generator=drawn)
        return goals.to(weights.device), _signs((count,), drawn).to(weights)

    def __call__(self, rows: pa.Table) -> npt.NDArray[np.float64]:
        """Return float64[rows, numbers]."""
        given, target = self._batch(rows)
        for what, one in (("input", given), ("target", target)):
            if not isinstance(one, torch.Tensor) or not one.ndim or len(one) != len(rows):
                shape = tuple(one.shape) if isinstance(one, torch.Tensor) else type(one).__name__
                raise BadArgument(f"batch= makes an {what} of {shape}; a tensor of {len(rows)} rows is right")
        step = max(1, AT_ONCE // self._size)
        parts = [self._of(given[at : at + step], target[at : at + step]) for at in range(0, len(rows), step)]
        found = np.concatenate(parts)
        if not np.isfinite(found).all():
            raise BadArgument("a gradient is NaN or infinite; finite weights, inputs and targets are wanted")
        return found

    def _of(self, given: torch.Tensor, target: torch.Tensor) -> npt.NDArray[np.float64]:
        made = {
            name: one.reshape(len(given), -1) for name, one in self._gradients(self._weights, given, target).items()
        }
        if self._size == self._width:
            folded = torch.cat(list(made.values()), dim=1).to(torch.float64)
        else:
            folded = torch.zeros(len(given), self._width, dtype=torch.float64, device=given.device)
            for name, one in made.items():
                goals, signs = self._goals[name]
                folded.index_add_(1, goals, (one * signs).to(torch.float64))
        found: npt.NDArray[np.float64] = folded.cpu().numpy() @ self._mix
        return found


def _signs(shape: tuple[int, ...], drawn: torch.Generator) -> torch.Tensor:
    return torch.randint(2, shape, generator=drawn) * 2 - 1


def _with_rows(one: torch.Tensor) -> torch.Tensor:
    """Return a row as a batch of one."""
    return one.unsqueeze(0)


@contextmanager
def _evaluated(module: torch.nn.Module) -> Iterator[None]:
    """Have a module evaluated: a row's gradient must not depend on other rows, or on chance."""
    training = {name: one.training for name, one in module.named_modules()}
    module.eval()
    try:
        yield
    finally:
        for name, one in module.named_modules():
            one.training = training[name]
