"""Figures of a loader, as functions, loggers and Prometheus get them."""

import itertools
import re

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import hooks
from corgipile.errors import BadArgument, WouldOverwrite, WriteFailed

TABLE = pa.table({"row": np.arange(500)})


def loader(**more):
    return cp.Loader(TABLE, batch_size=10, **more)


def test_figures_come_in_steps_and_at_the_end():
    steps, epochs, one = [], [], loader()
    for epoch in range(2):
        rows = [
            row
            for batch in hooks.watch(one, on_step=steps.append, on_epoch=epochs.append, every=20)
            for row in batch["row"]
        ]
        assert sorted(rows) == list(range(500))
        assert [figures["batches"] for figures in steps[2 * epoch :]] == [20, 40]
        assert (epochs[epoch]["epoch"], epochs[epoch]["rows"]) == (epoch, 500)
    assert epochs[0]["rows_per_second"] > 0
    assert len([*hooks.watch(one)]) == 50  # nobody asks


def test_what_has_no_figures_says_so():
    for batches in ([1, 2], iter(loader())):
        with pytest.raises(BadArgument, match="has no statistics"):
            list(hooks.watch(batches, on_epoch=print))
    with pytest.raises(BadArgument, match="every"):
        list(hooks.watch(loader(), every=0))
    one, told = loader(), []
    assert len(list(hooks.watch(map(len, one), of=one, on_epoch=told.append))) == 50
    assert told[0]["batches"] == 50


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning", "ignore:.*fork.*:DeprecationWarning")
def test_datasets():
    torch, ours = pytest.importorskip("torch"), pytest.importorskip("corgipile.torch")
    dataset, told = ours.CorgiPileDataset(TABLE, batch_size=10), []
    batches = torch.utils.data.DataLoader(dataset, batch_size=None)
    assert len(list(hooks.watch(batches, of=dataset, on_step=told.append, every=25))) == 50
    assert [figures["rows"] for figures in told] == [250, 500]
    batches = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)
    assert len(list(hooks.watch(batches, of=dataset, on_epoch=told.append))) == 50
    assert (told[-1]["epoch"], told[-1]["rows"]) == (1, 500)


def test_loggers_are_called_as_they_want(tmp_path):
    class Run:
        def __init__(self):
            self.calls = []

        def log(self, figures):
            self.calls.append(figures)

        def add_scalar(self, *scalar):
            self.calls.append(scalar)

    run, board = Run(), Run()
    list(hooks.watch(loader(), on_step=hooks.to_wandb(run), every=25))
    assert [call["corgipile/rows"] for call in run.calls] == [250, 500]
    list(hooks.watch(loader(), on_step=hooks.to_tensorboard(board), every=25))
    assert [call[1:] for call in board.calls if call[0] == "corgipile/rows"] == [(250, 1), (500, 2)]
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    logger = loggers.CSVLogger(tmp_path)
    one, hook = loader(), hooks.to_logger(logger)
    for _ in range(2):
        list(hooks.watch(one, on_epoch=hook))
    logger.save()
    lines = next(tmp_path.rglob("metrics.csv")).read_text().splitlines()
    rows, step = lines[0].split(",").index("corgipile/rows"), lines[0].split(",").index("step")
    assert [(line.split(",")[step], float(line.split(",")[rows])) for line in lines[1:]] == [("1", 500), ("2", 500)]


def test_trainings_are_told_by_rows_and_epochs(tmp_path):
    steps, table = [], pa.table({"x": np.arange(5000) % 2 * 1.0, "label": np.arange(5000) % 2})
    hook = hooks.to_prometheus(tmp_path / "train.prom")
    cp.train(table, epochs=3, memory="16KB", on_rows=hooks.by_rows(steps.append, every=1000), callback=hook)
    rows = [figures["rows"] for figures in steps]
    assert rows == sorted(set(rows))
    assert 10 <= len(rows) <= 15
    assert all(later // 1000 > row // 1000 for row, later in itertools.pairwise(rows))
    assert "corgipile_accuracy 1.0" in (tmp_path / "train.prom").read_text()
    told = hooks.by_rows(steps.append, every=10)
    steps.clear()
    for count in (9, 5, -14, 9, 5, 9):
        told(count)
    assert [figures["rows"] for figures in steps] == [14, 23]
    with pytest.raises(BadArgument, match="every"):
        hooks.by_rows(print, every=0)


def test_prometheus_text(tmp_path):
    path = tmp_path / "train.prom"
    hook = hooks.to_prometheus(path, rank="3", run='a "b"\\\n')
    one = loader()
    for epoch in range(2):
        list(hooks.watch(one, on_epoch=hook))
        text = path.read_text()
        assert f'corgipile_epoch{{rank="3",run="a \\"b\\"\\\\\\n"}} {epoch}\n' in text
    for line in text.splitlines():
        assert re.fullmatch(r'#.*|corgipile_[a-z_]+\{rank="3",run="[^\n]*"\} [0-9.e+-]+', line), line
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.prom"]
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    with pytest.raises(WouldOverwrite):
        hooks.to_prometheus(other)({"rows": 1})
    with pytest.raises(WriteFailed):
        hooks.to_prometheus(tmp_path / "no" / "x.prom")({"rows": 1})
    with pytest.raises(BadArgument, match="label"):
        hooks.to_prometheus(path, **{"a b": "c"})
