"""Progress bar of a training."""

from contextlib import ExitStack
from typing import Any, Self

from corgipile.bars import Watch, progress

__all__ = ["TrainingBar"]


class TrainingBar:
    """Shows a training's progress as a bar.

    Example:
        >>> with TrainingBar(quiet=True) as shown:
        ...     shown.begin(1000, 2)
        ...     shown.rows(1000)
        ...     shown.epoch({"epoch": 0, "loss": 0.5})
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._inside = quiet, ExitStack()
        self._watch: Watch | None = None
        self._epochs = self._done = self._left = self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._inside.close()

    def begin(self, rows: int, epochs: int) -> None:
        """Show a new bar."""
        self._inside.close()
        bar = self._inside.enter_context(progress("train", quiet=self._quiet))
        self._watch, self._epochs, self._left = Watch(bar, rows * epochs), epochs, rows * epochs
        self._done = self._last = 0

    def rows(self, count: int) -> None:
        """Advance the bar; the last rows wait until the last epoch's loss is known."""
        self._left -= count
        if self._left <= 0:
            self._last += count
        elif self._watch is not None:
            self._watch.rows(count)

    def epoch(self, record: dict[str, Any]) -> None:
        """Show the epoch's loss."""
        if self._watch is not None:
            loss = "" if record.get("loss") is None else f": loss {record['loss']:.4g}"
            self._done += 1
            self._watch.note(f"{self._done} of {self._epochs} epochs{loss}")
            self._watch.rows(self._last)
            self._last = 0
