"""The loop over epochs that all trainers share."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from corgipile.linear.model import Model
from corgipile.linear.problem import Record, Task
from corgipile.linear.sgd import Figures
from corgipile.loader.buffered_reader import BufferedReader

__all__ = ["Meter", "Trainer"]


class Meter:
    """Measures an epoch.

    Args:
        feeder: Reads the rows.
    """

    def __init__(self, feeder: BufferedReader) -> None:
        self._feeder, self._start, self._read = feeder, time.perf_counter(), feeder.bytes_read

    def record(self, epoch: int, kind: str, figures: Figures, skipped: int, **more: Any) -> Record:
        """Return the record of an epoch."""
        return {
            "epoch": epoch,
            **figures.record(kind),
            "rows": figures.rows,
            "seconds": time.perf_counter() - self._start,
            "bytes_read": self._feeder.bytes_read - self._read,
            **more,
            **({"skipped": skipped} if skipped else {}),
        }


class Trainer:
    """A training run, epoch by epoch.

    Args:
        task: The task.
        feeder: Reads the rows.
        params: The settings that the model records.
        past: The records of a warm start.
        on_rows: Called with numbers of trained rows; a negative number undoes those of an epoch that restarts.
    """

    def __init__(
        self,
        task: Task,
        feeder: BufferedReader,
        params: Record,
        past: Sequence[Record] = (),
        on_rows: Callable[[int], object] | None = None,
    ) -> None:
        self.task, self._feeder, self._params = task, feeder, params
        self.history = [dict(record) for record in past]
        self._on_rows = on_rows or (lambda _: None)

    def run(
        self,
        epochs: int,
        measure: Callable[[Model], Record] | None = None,
        callback: Callable[[Record], object] | None = None,
        save: Callable[[Model], object] | None = None,
    ) -> Model:
        """Train so many more epochs, or until a stopping rule holds, and return the model."""
        first = len(self.history)
        for epoch in range(first, first + epochs):
            record = self._epoch(epoch, last=epoch + 1 == first + epochs)
            if measure is not None:
                record |= measure(self._current_model())
            self.history.append(record)
            if callback is not None:
                callback(record)
            stop = self._stops(record)
            if save is not None:
                save(self.model())
            if stop:
                break
        self._note_outcome()
        model = self.model()
        if save is not None:
            save(model)
        return model

    def model(self) -> Model:
        """Return the model to save."""
        return self._current_model()

    def _epoch(self, epoch: int, *, last: bool) -> Record:
        """Train an epoch and return its record."""
        raise NotImplementedError

    def _current_model(self) -> Model:
        """Return the model with the current weights, for unscaled features."""
        raise NotImplementedError

    def _stops(self, record: Record) -> bool:
        """Return whether training ends after an epoch; adjust learning rates for the next."""
        raise NotImplementedError

    def _note_outcome(self) -> None:
        """Add notes after the last epoch."""
