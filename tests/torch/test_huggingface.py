"""Hugging Face datasets: Concurrent gives what the dataset gives, whatever its format, and from any process."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from corgipile.errors import FetchFailed
from corgipile.tables import open as open_table

pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")
data = pytest.importorskip("torch.utils.data")
Concurrent = pytest.importorskip("corgipile.torch").Concurrent
huggingface = pytest.importorskip("corgipile.torch.huggingface")

ROWS = 2500


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A dataset as it is loaded from disk: Arrow stream files, mapped."""
    folder = tmp_path_factory.mktemp("dataset")
    rng = np.random.default_rng(0)
    made = datasets.Dataset.from_dict(
        {
            "vector": rng.standard_normal((ROWS, 8)).astype(np.float32).tolist(),
            "text": ["word " * (i % 7) for i in range(ROWS)],
            "label": list(range(ROWS)),
            "tokens": [list(range(i % 5)) for i in range(ROWS)],
        }
    )
    made.save_to_disk(str(folder), num_shards=3)
    return datasets.load_from_disk(str(folder))


SHAPES = {
    "as stored": lambda whole: whole,
    "numpy": lambda whole: whole.with_format("numpy"),
    "torch, two columns": lambda whole: whole.with_format("torch", columns=["vector", "label"]),
    "two formatted, all given": lambda whole: whole.with_format("numpy", columns=["label"], output_all_columns=True),
    "shuffled": lambda whole: whole.shuffle(seed=1),
    "a run": lambda whole: whole.select(range(700, 1900)),
    "some": lambda whole: whole.select(list(range(0, ROWS, 7))),
    "filtered": lambda whole: whole.filter(lambda row: row["label"] % 3 == 0, load_from_cache_file=False),
    "transformed": lambda whole: whole.with_transform(lambda rows: {"twice": [2 * label for label in rows["label"]]}),
    "columns beside": lambda whole: datasets.concatenate_datasets(
        [whole, datasets.Dataset.from_dict({"more": list(range(ROWS))})], axis=1
    ),
    "end to end": lambda whole: datasets.concatenate_datasets([whole, whole]),
    "in memory": lambda whole: datasets.Dataset.from_dict({"label": whole["label"][:]}),
}


def same(one, other):
    assert one.keys() == other.keys()
    return all(np.array_equal(np.asarray(one[name]), np.asarray(other[name])) for name in one)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_gives_what_the_dataset_gives(stored, shape):
    whole = SHAPES[shape](stored)
    wanted = np.random.default_rng(1).permutation(len(whole))[:600].tolist()
    batches = [wanted[at : at + 256] for at in range(0, len(wanted), 256)]
    with Concurrent(whole, threads=4, unordered=False) as rows:
        assert len(rows) == len(whole)
        came = list(data.DataLoader(rows, batch_sampler=rows.ahead(batches, 2), collate_fn=list))
        assert [len(batch) for batch in came] == [len(batch) for batch in batches]
        expected = [row for batch in batches for row in whole.__getitems__(batch)]
        assert all(map(same, [row for batch in came for row in batch], expected))
        assert same(rows[3], whole[3])
        assert rows.__getitems__([]) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers(stored):
    whole = stored.with_format("numpy", columns=["label"])
    batches = [list(range(at, at + 50)) for at in range(0, 500, 50)]
    with Concurrent(whole, threads=2, unordered=False) as rows:
        rows.__getitems__([1, 2])
        options = {"num_workers": 2, "multiprocessing_context": "fork", "collate_fn": list}
        came = list(data.DataLoader(rows, batch_sampler=rows.ahead(batches, 2), **options))
        again = pickle.loads(pickle.dumps(rows))  # noqa: S301
    assert [[int(row["label"]) for row in batch] for batch in came] == batches
    with again:
        assert [int(row["label"]) for row in again.__getitems__([9, 2])] == [9, 2]


def test_rows_are_announced_where_the_files_hold_them(stored):
    shuffled = stored.shuffle(seed=3)
    source = huggingface.MappedDataset(shuffled)
    places = source.offsets(np.arange(20))
    assert places.tolist() == shuffled["label"][:20]
    assert {Path(file["filename"]).suffix for file in shuffled.cache_files} == {".arrow"}
    ranges = list(source._rows().ranges(places))
    assert sum(int(part.length.sum()) for part in ranges) >= 20 * 8 * 4
    again = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert again.offsets(np.arange(20)).tolist() == places.tolist()
    source.close()


def test_a_row_that_is_not_there_is_named(stored):
    for whole in (stored, stored.shuffle(seed=1)):
        with Concurrent(whole) as rows, pytest.raises(FetchFailed, match=rf"row {ROWS} failed: IndexError"):
            rows.__getitems__([1, ROWS])


def test_a_dictionary_of_splits_is_told_apart(stored):
    splits = datasets.DatasetDict({"train": stored})
    assert not huggingface.is_hugging_face(splits)
    with Concurrent(splits) as rows, pytest.raises(FetchFailed, match=r"row 3 failed: KeyError: .*split"):
        rows.__getitems__([3])


def test_it_is_a_table_and_its_folder_is_one(stored, tmp_path):
    assert open_table(stored).read(7, 9, ["label"]).to_pydict() == {"label": [7, 8]}
    stored.save_to_disk(str(tmp_path / "saved"))
    assert open_table(tmp_path / "saved").read(7, 9, ["label"]).to_pydict() == {"label": [7, 8]}
