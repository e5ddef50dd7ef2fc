"""Repositories of the Hugging Face Hub: rows of one commit, by its own ways of saying who asks and where bytes are."""

import io
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import TOKEN, Hub, serving

import corgipile as cp
from corgipile.errors import MissingFile, ReadFailed

hub_library = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")
ROWS = 30_000


def parquet(first):
    rows = pa.table({"id": np.arange(first, first + ROWS), "x": np.random.default_rng(first).random(ROWS)})
    out = io.BytesIO()
    pq.write_table(rows, out, row_group_size=5000)
    return out.getvalue()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Give a Hub with a private repository, whose token the environment has."""
    made = Hub()
    made.commits.append({f"data/part-{part}.parquet": parquet(part * ROWS) for part in range(2)})
    with serving(made):
        template = made.url + constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", made.url)  # as HF_ENDPOINT does before the library is imported
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("CORGIPILE_CACHE", str(tmp_path))
        hub_library.HfFileSystem.clear_instance_cache()
        from corgipile.stores.line import line  # noqa: PLC0415 - which keeps file systems

        line().kept.clear()
        yield made
        line().kept.clear()


def ids(table, **options):
    loader = cp.Loader(table, memory="1MB", order="riffle", **options)
    return np.sort(np.concatenate([batch["id"] for batch in loader]))


@pytest.mark.parametrize("which", ["*.parquet", "part-{0,1}.parquet", ""])
def test_every_row_comes_once_and_bytes_from_where_the_hub_sends(hub, which):
    table = cp.open(f"hf://datasets/me/set/data/{which}")
    hub.asked.clear()
    assert np.array_equal(ids(table), np.arange(2 * ROWS))
    sent = [(path, has_token) for path, range_, has_token in hub.asked if range_]
    assert not any(has_token for path, has_token in sent if path.startswith("/cdn/"))
    assert sum(path.startswith("/datasets/") for path, _ in sent) <= 8  # the rest goes where it was sent before
    assert len(sent) <= 40


def test_rows_are_of_one_commit(hub):
    table = cp.open("hf://datasets/me/set/data/part-0.parquet")
    fingerprint = table.fingerprint
    hub.commits.append({"data/part-0.parquet": parquet(7)})
    assert np.array_equal(ids(table), np.arange(ROWS))
    again = pickle.loads(pickle.dumps(table))  # noqa: S301 - ours
    assert again.fingerprint != fingerprint  # opened anew
    assert np.array_equal(ids("hf://datasets/me/set/data/part-0.parquet"), np.arange(7, ROWS + 7))
    assert np.array_equal(ids(f"hf://datasets/me/set@{0:040}/data/part-0.parquet"), np.arange(ROWS))


def test_addresses_that_expire_are_asked_for_anew(hub):
    table = cp.open("hf://datasets/me/set/data/part-0.parquet", spill="off")
    batches = iter(cp.Loader(table, memory="2MB", order="riffle", batch_size=500))
    seen = [next(batches)["id"]]
    hub.signature += 1
    seen += [batch["id"] for batch in batches]
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(ROWS))


def test_what_is_refused_says_what_helps_and_no_token(hub, monkeypatch):
    with pytest.raises(MissingFile, match="nothing"):
        cp.open("hf://datasets/me/set/data/nothing.parquet")
    table = cp.open("hf://datasets/me/set/data/part-0.parquet")
    assert TOKEN not in repr(pickle.dumps(table)) + repr(table)
    hub.signature += 1
    monkeypatch.setenv("HF_TOKEN", "hf_anothertoken")
    with pytest.raises((ReadFailed, MissingFile), match="HF_TOKEN") as caught:
        table.read(0, ROWS)
    assert "hf_another" not in str(caught.value)
    assert "Signature" not in str(caught.value)
    hub_library.HfFileSystem.clear_instance_cache()
    with pytest.raises((ReadFailed, MissingFile), match="HF_TOKEN") as caught:
        cp.open("hf://datasets/me/other/data/part-0.parquet")
    assert "hf_another" not in str(caught.value)


def test_a_file_system_that_is_given(hub):
    system = hub_library.HfFileSystem(endpoint=hub.url, token=TOKEN)
    assert len(cp.open("datasets/me/set/data/part-1.parquet", filesystem=system)) == ROWS
