"""Balance by content: the vectors of blocks for every storage, and epochs resumed from their states."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, StateMismatch
from corgipile.loader import sampled_runs
from corgipile.loader.content import Content
from corgipile.orders import Riffle
from corgipile.quality import deff, prefix_discrepancy
from corgipile.torch import BatchSampler, CorgiPileDataset

ROWS, BLOCK = 4000, 50
SIZES = {"block": BLOCK, "buffer": 12 * BLOCK, "group": 1}


def table(rows=ROWS):
    """Rows with clustered features, mixed labels and a text."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    x = x[np.lexsort((x[:, 0], x[:, 1] > 0))]
    label = (rng.random(rows) < 0.3).astype(np.int64)
    columns = {"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 6), "label": label}
    return pa.table({**columns, "text": [f"{value:.2f}" for value in x[:, 0]]})


def visited(source, balance, **more):
    with cp.Loader(source, batch_size=64, order=Riffle(balance=balance, **SIZES), seed=3, **more) as loader:
        return np.concatenate(list(loader.feeder.rows(0)))


def stored(kind, tmp_path):
    path = tmp_path / "rows"
    if kind == "parquet":
        pq.write_table(table(), path, row_group_size=400)
        return cp.open(path)
    if kind == "memory":
        return cp.open(table())
    with pa.ipc.new_file(path, table().schema) as writer:
        writer.write_table(table(), max_chunksize=300)
    return cp.open(path)


@pytest.mark.parametrize("kind", ["memory", "arrow", "parquet"])
def test_stretches_have_all_features_and_each_row_comes_once(kind, tmp_path):
    source, x = stored(kind, tmp_path), table()["x"].combine_chunks().flatten().to_numpy().reshape(-1, 6)
    found = {balance: visited(source, balance) for balance in (None, "label", "content")}
    for rows in found.values():
        assert (np.sort(rows) == np.arange(ROWS)).all()
    for column in (0, 1):
        spread = {balance: deff(x[rows, column], 64) for balance, rows in found.items()}
        drift = {balance: prefix_discrepancy(x[rows, column]) for balance, rows in found.items()}
        assert spread["content"] < 1.2 < min(spread[None], spread["label"])
        assert drift["content"] < 0.5 * min(drift[None], drift["label"])
    assert deff(table()["label"].to_numpy()[found["content"]], 64) < 1.2


def test_the_same_vectors_wherever_rows_are(tmp_path):
    cuts = np.arange(0, ROWS + 1, BLOCK)
    found = [
        Content(("x", "label", "text"), "label")(stored(kind, tmp_path / kind), cuts, "content")
        for kind in ("memory", "arrow", "parquet")
        if not (tmp_path / kind).mkdir()
    ]
    assert found[0].dtype == np.int16
    assert found[0].shape == (ROWS // BLOCK, 13)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


KINDS = {
    "numbers": pa.array([1.5, None, float("nan"), float("inf"), -2.0, 3e300] * 20),
    "booleans": pa.array([True, False, None] * 40),
    "half": pa.array(np.arange(120, dtype=np.float16)),
    "lists": pa.array([[1.0, 2.0], None, [3.0, 4.0]] * 40),
    "matrices": pa.array([[[1, 2], [3, 4]], None] * 60, pa.list_(pa.list_(pa.int8(), 2), 2)),
    "wide": pa.array(np.arange(120 * 50).reshape(120, 50).tolist(), pa.list_(pa.int32(), 50)),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("label", [None, [0, 1], ["a", "b", None], list(range(30)), [0.25, 1.5], [7]])
def test_columns_and_labels_of_all_kinds(name, label):
    columns = {name: KINDS[name]} if label is None else {name: KINDS[name], "label": (label * 120)[:120]}
    source = cp.open(pa.table(columns))
    found = Content(tuple(columns), "label")(source, np.arange(0, 121, 10), "content")
    assert found.shape[0] == 12
    assert 1 <= found.shape[1] <= 64
    assert len(np.unique(found, axis=0)) > 1 or label in (None, [0, 1], [7], ["a", "b", None], [0.25, 1.5])


def test_blocks_without_anything_to_tell_them_apart():
    for columns in ({"label": [7] * 100}, {"label": [float("nan")] * 100}, {"x": [1.5] * 100}):
        found = Content(tuple(columns), "label")(cp.open(pa.table(columns)), np.array([0, 10, 10, 100]), "content")
        assert (found == found[0]).all()
        assert found.shape == (3, 2 if "x" in columns else 1)


@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_any_rows_and_blocks(rows, block, seed):
    rng = np.random.default_rng(seed)
    source = cp.open(pa.table({"x": rng.normal(size=rows), "label": rng.integers(0, 3, rows)}))
    order = Riffle(block=block, buffer=3 * block, balance="content")
    with cp.Loader(source, batch_size=7, order=order, memory=None, seed=seed) as loader:
        seen = np.concatenate([batch["x"] for batch in loader])
    assert (np.sort(seen) == np.sort(source.read(0, rows).column("x").to_numpy())).all()


def test_sparse_rows_are_told_apart():
    kind = np.repeat(np.arange(20), 50)
    columns = {
        "features_k": pa.array([[int(k) * 3, 1000 + i % 7] for i, k in enumerate(kind)], pa.list_(pa.int32())),
        "features_v": pa.array([[1.0, 0.1]] * len(kind), pa.list_(pa.float32())),
        "label": np.arange(len(kind)) % 2,
    }
    source = cp.open(pa.table(columns))
    found = Content(tuple(columns), "label")(source, np.arange(0, 1001, 25), "content").astype(float)
    apart = ((found[:, None] - found) ** 2).sum(axis=-1)
    same = np.arange(40)[:, None] // 2 == np.arange(40) // 2
    assert apart[same].max() < apart[~same].min()
    model = cp.train(source, order=Riffle(block=25, buffer=200, balance="content"), epochs=1)
    assert model.history[0]["rows"] == 1000


def embed(batch):
    return np.array([float(text) for text in batch.column("text").to_pylist()])


def test_a_function_makes_numbers_of_text():
    source = cp.open(table().select(["text", "label"]))
    values = np.array([float(text) for text in table()["text"].to_pylist()])
    rows = visited(source, "content", sketch=embed)
    assert deff(values[rows], 64) < 1.2 < deff(values[visited(source, "label")], 64)
    with pytest.raises(BadSchema, match="give sketch="):
        visited(cp.open(table().select(["text"])), "content")


@pytest.mark.parametrize(
    "wrong", [lambda _: "a", lambda batch: np.zeros(batch.num_rows + 1), lambda _: None, lambda b: [[]] * b.num_rows]
)
def test_a_function_that_makes_no_numbers(wrong):
    with pytest.raises(BadArgument, match="sketch= must return"):
        visited(cp.open(table()), "content", sketch=wrong)


def test_what_has_no_effect_is_refused():
    with pytest.raises(BadArgument, match="content"):
        visited(cp.open(table()), "label", sketch=embed)
    with pytest.raises(BadArgument, match="it reads no rows"):
        BatchSampler(100, order=Riffle(balance="content"), block=5, buffer=20, batch_size=4, labels=np.zeros(100))
    ragged = cp.open(pa.table({"x": [[1.0], [1.0, 2.0]] * 50}))
    with pytest.raises(BadSchema, match="differ in length"):
        visited(ragged, "content", widths={})


def left(source, state, **more):
    with cp.Loader(source, batch_size=64, order=Riffle(balance="content", **SIZES), seed=3, **more) as loader:
        loader.load_state_dict(state)
        return np.concatenate([batch["x"] for batch in loader])


def test_a_loader_goes_on_where_it_stood():
    source = cp.open(table().select(["x", "label"]))
    with cp.Loader(source, batch_size=64, order=Riffle(balance="content", **SIZES), seed=3) as loader:
        batches = iter(loader)
        for _ in range(20):
            next(batches)
        state = loader.state_dict()
        rest = np.concatenate([batch["x"] for batch in batches])
    assert (left(cp.open(table().select(["x", "label"])), state) == rest).all()
    with pytest.raises(StateMismatch, match="sketch"):
        left(source, state, sketch=lambda batch: np.arange(batch.num_rows))


def test_other_ranks_visit_what_is_left():
    source = cp.open(table())
    settings = {"order": Riffle(balance="content", **SIZES), "batch_size": 64, "sketch": embed, "seed": 1}
    dataset = CorgiPileDataset(source, **settings)
    batches = iter(dataset)
    seen = [next(batches)["x"][:, 0].numpy() for _ in range(20)]
    for world in (2, 3):
        parts = [CorgiPileDataset(source, rank=rank, world=world, **settings) for rank in range(world)]
        for part in parts:
            part.load_state_dict(dataset.state_dict())
        walks = [iter(part) for part in parts]
        seen += [next(walk)["x"][:, 0].numpy() for walk in walks]
        dataset = parts[0]
    last = CorgiPileDataset(source, **settings)
    last.load_state_dict(dataset.state_dict())
    seen += [batch["x"][:, 0].numpy() for batch in last]
    values = table()["x"].combine_chunks().flatten().to_numpy()[::6]
    assert (np.sort(np.concatenate(seen)) == np.sort(values)).all()


@pytest.mark.parametrize("earlier", ["narrower", "other", "none"])
def test_states_of_other_vectors_are_refused(earlier, monkeypatch):
    """The blocks' vectors have changed since the state was saved, so its visits would differ."""
    rng = np.random.default_rng(3)
    rows = pa.table({"x": np.sort(rng.normal(size=600)), "label": rng.integers(0, 2, 600)})
    order = Riffle(block=10, buffer=60, balance="content")

    def begun():
        return cp.Loader(cp.open(rows), batch_size=16, order=order, memory=None, seed=5)

    with begun() as loader:
        batches = [batch["x"] for batch in loader]
        loader.set_epoch(0)
        whole = iter(loader)
        for _ in range(7):
            next(whole)
        state = loader.state_dict()
    with begun() as again:
        again.load_state_dict(state)
        assert all(map(np.array_equal, [batch["x"] for batch in again], batches[7:]))
    if earlier == "narrower":  # vectors without products of features
        told = sampled_runs.SampledRuns.make_vectors
        monkeypatch.setattr(sampled_runs.SampledRuns, "make_vectors", lambda *given: told(*given)[:, :2])
        with begun() as loader:
            assert loader.feeder.blocks.sketch.shape == (60, 2)
            state = loader.state_dict()
        monkeypatch.undo()
    elif earlier == "other":
        state["segments"][0]["sketch"] ^= 1
    else:
        del state["segments"][0]["sketch"]
    with begun() as again, pytest.raises(StateMismatch, match="to another sketch"):
        again.load_state_dict(state)
