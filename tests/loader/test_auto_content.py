"""The default order balances by content if features cluster beyond the label and the memory holds few blocks."""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgipile as cp
from corgipile import _kernel
from corgipile.errors import BadArgument, StateMismatch
from corgipile.linear import train
from corgipile.loader.sampled_runs import SampledRuns
from corgipile.orders import Auto, Riffle, restored
from corgipile.quality import deff
from corgipile.testing import Counting
from corgipile.torch import CorgiPileDataset
from corgipile.torch.elastic import ElasticLoader

ROWS, FEW = 20_000, "40KB"  # rows of 20 bytes; memory that holds few of their blocks


def rows(lies, seed=0):
    """Makes rows of four features and a label in one of several layouts."""
    random = np.random.default_rng(seed)
    x, label = random.normal(size=(ROWS, 4)).astype(np.float32), random.integers(0, 2, ROWS).astype(np.int32)
    if lies == "clustered":
        x = x[np.argsort(x[:, 1])]
    elif lies == "sorted":
        label.sort()
        x += label[:, None]
    return pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 4), "label": label})


def stored(table, tmp_path, kind="arrow"):
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=5000)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=3000)
    return path


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize(("lies", "by"), [("clustered", "content"), ("sorted", "label"), ("mixed", "label")])
def test_what_rows_have_in_common_decides_and_is_told(lies, by, kind, tmp_path, caplog):
    path = stored(rows(lies), tmp_path, kind)
    with caplog.at_level(logging.INFO, "corgipile"), cp.Loader(path, memory=FEW) as loader:
        assert loader.order.balance == by
        visited = np.concatenate(list(loader.feeder.rows(0)))
    assert f"order=balanced by {'content' if by == 'content' else repr(by)}" in repr(loader)
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("order of")]
    assert len(said) == 1
    assert ("of the variance of a column in common, beyond 'label'" in said[0]) == (by == "content")
    assert (np.sort(visited) == np.arange(ROWS)).all()
    x = rows(lies)["x"].combine_chunks().flatten().to_numpy().reshape(-1, 4)
    assert deff(x[visited, 1], 256) < 1.2
    assert train(path, features="x", memory=FEW, epochs=1).params["balance"] == by


def test_it_is_the_order_that_can_be_asked_for_by_name():
    table = cp.open(rows("clustered"))
    with cp.Loader(table, memory=FEW, seed=3) as auto:
        asked = Riffle(balance="content", batch=256)
        with cp.Loader(table, memory=FEW, seed=3, order=asked) as named:
            assert auto.order == named.order
            for one, other in zip(auto, named, strict=True):
                assert np.array_equal(one["x"], other["x"])


def test_labels_that_are_not_balanced_by_count_among_what_is_alike():
    table = rows("sorted")
    texts = table.set_column(1, "label", pa.array(np.where(table["label"].to_numpy() == 1, "yes", "no")))
    for source, by in ((texts, "label"), *((one.rename_columns(["x", "kind"]), "content") for one in (table, texts))):
        with cp.Loader(source, memory=FEW) as loader:
            assert loader.order.balance == by


def test_numbers_of_rows_do_not_count_and_text_alone_tells_nothing():
    table = rows("mixed").append_column("id", pa.array(np.arange(ROWS) * 3))
    text = pa.table({"text": [f"{i // 100}" for i in range(ROWS)], "label": table["label"]})
    ragged = pa.table({"x": [[float(i // 100)] * (1 + i % 2) for i in range(ROWS)], "label": table["label"]})
    for source in (table, text, ragged):
        with cp.Loader(source, memory="60KB") as loader:
            assert loader.order.balance == "label"


@pytest.fixture
def looks(monkeypatch):
    """Return the measurements of shared variance."""
    found, alike = [], SampledRuns.shared_variance

    def counted(self, *given, **more):
        found.append(self)
        return alike(self, *given, **more)

    monkeypatch.setattr(SampledRuns, "shared_variance", counted)
    return found


def test_what_needs_no_look_gets_none(looks, tmp_path):
    table = rows("clustered")
    units = cp.open(stored(table, tmp_path, "parquet"), spill=None)  # read whole for a few of its rows
    for source, more in (
        (table, {"memory": "1MB"}),
        (table, {"memory": FEW, "order": "balanced"}),
        (table, {"memory": FEW, "order": Auto(balance="label")}),
        (units, {"memory": "300KB"}),
    ):
        with cp.Loader(source, **more) as loader:
            assert loader.order.balance == "label"
    assert not looks
    with cp.Loader(table, memory=FEW):
        assert len(looks) == 1


def test_a_look_takes_a_few_rows():
    random = np.random.default_rng(1)
    table = Counting(cp.open(pa.table({"x": random.normal(size=1_000_000), "y": random.integers(0, 2, 1_000_000)})))
    with cp.Loader(table, memory="100KB", label="y") as loader:
        assert loader.order.balance == "y"
        assert loader.feeder.blocks.count > 256
    assert sum(stop - start == 1 for start, stop in table.runs) <= 8192


def test_an_epoch_goes_on_where_a_state_says():
    table = rows("clustered")
    with cp.Loader(table, memory=FEW, seed=2) as loader:
        batches = iter(loader)
        for _ in range(30):
            next(batches)
        state = loader.state_dict()
        rest = [batch["x"] for batch in batches] + [batch["x"] for batch in loader]
    with cp.Loader(rows("clustered"), memory=FEW, seed=2) as again:
        again.load_state_dict(state)
        assert all(map(np.array_equal, [batch["x"] for batch in again] + [batch["x"] for batch in again], rest))
    with cp.Loader(rows("clustered", seed=1), memory=FEW, seed=2) as other, pytest.raises(StateMismatch):
        other.load_state_dict(state)
    with (
        cp.Loader(table, memory="1MB", seed=2) as larger,
        pytest.raises(StateMismatch, match=r"give order=Riffle\(.*balance='content'"),
    ):
        larger.load_state_dict(state)
    order = restored(state["segments"][0]["order"])
    with cp.Loader(table, memory="1MB", seed=2, order=order) as larger:
        larger.load_state_dict({**state, "order": larger.state_dict()["order"]})
        assert all(map(np.array_equal, [batch["x"] for batch in larger], rest))


@pytest.mark.parametrize("parts", ["world", "workers"])
def test_ranks_and_workers_choose_alike_and_share_the_rows(parts):
    table, seen = rows("clustered"), []
    for part in range(3):
        with cp.Loader(table, memory=FEW, **{parts: 3, parts[:-1] if parts == "workers" else "rank": part}) as one:
            assert one.order.balance == "content"
            seen += [np.concatenate([batch["x"] for batch in one])]
    x = table["x"].combine_chunks().flatten().to_numpy().reshape(-1, 4)
    found = np.unique(np.concatenate(seen), axis=0)
    assert np.array_equal(found, np.unique(x, axis=0))


def test_a_dataset_of_tensors_goes_on_in_another_world():
    table = rows("clustered")
    sizes = {"memory": FEW, "batch_size": 64}
    dataset = CorgiPileDataset(table, **sizes)
    assert dataset.order.balance == "content"
    batches = iter(dataset)
    seen = [next(batches)["x"].numpy() for _ in range(20)]
    parts = [CorgiPileDataset(table, rank=rank, world=2, **sizes) for rank in range(2)]
    for part in parts:
        part.load_state_dict(dataset.state_dict())
        seen += [batch["x"].numpy() for batch in part]
    x = table["x"].combine_chunks().flatten().to_numpy().reshape(-1, 4)
    assert np.array_equal(np.unique(np.concatenate(seen), axis=0), np.unique(x, axis=0))


def test_where_nobody_can_look_it_is_the_label():
    from torch.distributed import HashStore  # noqa: PLC0415

    loader = ElasticLoader(rows("clustered"), HashStore(), memory=FEW)
    assert loader.state_dict()["order"]["balance"] == "label"
    loader.leave()


def test_what_the_kernel_is_given_is_checked():
    for given in ((0, 1, 0), (3, 1, 0), (1 << 40, 1, 0), (5, -1, 3), (1, 0, 0)):
        with pytest.raises(ValueError, match=r"out of range|whole spots"):
            _kernel.similarity(np.zeros(10), *given)
    assert _kernel.similarity(np.repeat([0.0, 1.0], 50), 10, 1, 0) > 0.9
    assert not _kernel.wants_content(1, 100, 100, 1)
    assert _kernel.wants_content(1, 101, 100, 1)
    with pytest.raises(BadArgument, match="sketch="):
        cp.Loader(rows("clustered"), memory=FEW, sketch=lambda batch: np.zeros(batch.num_rows))


@pytest.mark.parametrize(("batch", "by"), [(1, "label"), (4096, "content")])
def test_a_step_for_many_rows_wants_more_blocks_mixed(batch, by):
    order = Auto(block=10, buffer=3000)
    assert train(rows("clustered"), features="x", order=order, batch_size=batch, epochs=1).params["balance"] == by


@pytest.mark.parametrize("order", ["auto", Riffle(balance="content")])
def test_a_label_that_is_not_loaded_tells_blocks_of_unpacked_tables_apart(order, tmp_path):
    table = rows("clustered").append_column("id", pa.array(np.arange(ROWS)))
    with cp.Loader(stored(table, tmp_path, "parquet"), order=order, memory=FEW, columns=["x", "id"]) as loader:
        assert loader.feeder.fitted.way.spilled
        for _ in range(2):
            assert sorted(np.concatenate([batch["id"] for batch in loader])) == list(range(ROWS))
