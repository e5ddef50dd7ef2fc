"""Loaders of other projects over one table on disk: float32 rows and a label that is the row number.

Each job writes the table in the peer's own format once, and is then tuned for reading speed. A run opens the files
again, so that a cold one is cold.
"""
# ruff: noqa: PLC0415 - each job imports its own peer

import contextlib
import shutil
import sys
import types
import warnings
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path

from peer_walk import walk

CHUNK = 1 << 14


def map_style(x, y, batch):
    """Iterate over DataLoader(shuffle=True) on a dataset whose ``__getitem__`` reads one row of a memory map."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __init__(self):
            self.x, self.y = maps(x, y)

        def __len__(self):
            return len(self.x)

        def __getitem__(self, row):
            return torch.from_numpy(self.x[row]), int(self.y[row])

    def batches(seed):
        torch.manual_seed(seed)
        yield from (item[1] for item in DataLoader(Rows(), batch_size=batch, shuffle=True))

    return walker(batches)


def getitems(x, y, batch):
    """Iterate over DataLoader(shuffle=True) on a dataset whose ``__getitems__`` gathers a batch from a memory map."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __init__(self):
            self.x, self.y = maps(x, y)

        def __len__(self):
            return len(self.x)

        def __getitems__(self, rows):
            rows = np.asarray(rows)
            return torch.from_numpy(self.x[rows]), torch.from_numpy(self.y[rows])

    def batches(seed):
        torch.manual_seed(seed)
        loader = DataLoader(Rows(), batch_size=batch, shuffle=True, collate_fn=lambda item: item)
        yield from (item[1] for item in loader)

    return walker(batches)


def hf_iterable(stream, batch, buffer, shards):
    """Iterate over Hugging Face datasets: IterableDataset.shuffle, batches of arrays."""
    from datasets import Dataset

    def batches(seed):
        data = Dataset.from_file(stream).to_iterable_dataset(num_shards=shards).with_format("numpy")
        yield from (item["label"] for item in data.shuffle(seed=seed, buffer_size=buffer).iter(batch_size=batch))

    return walker(batches)


def grain_records(x, y, batch, folder, threads=2, buffer=16):
    """Iterate over Grain on ArrayRecord: a global shuffle of row numbers, records of one row each."""
    import grain
    import numpy as np
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    from array_record.python.array_record_module import ArrayRecordWriter

    path = Path(folder) / "rows.array_record"
    with fresh(folder) as needed:
        if needed:
            writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
            for row, label in rows_of(x, y):
                writer.write(label.tobytes() + row.tobytes())
            writer.close()

    def batches(seed):
        with ArrayRecordDataSource([str(path)]) as source:

            def read(numbers):
                records = np.frombuffer(b"".join(source.__getitems__(numbers.tolist())), np.uint8)
                records = records.reshape(len(numbers), -1)
                return records[:, 8:].view(np.float32), records[:, :8].copy().view(np.int64).ravel()

            # Rows one by one through source -> shuffle -> map -> batch, as documented, are 10 times slower than this.
            data = grain.MapDataset.range(len(source)).shuffle(seed=seed).batch(batch).map(read)
            options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=buffer)
            yield from (item[1] for item in data.to_iter_dataset(options))

    return walker(batches)


def mosaicml(x, y, batch, folder):
    """Iterate over MosaicML streaming: MDS shards, shuffle py1e."""
    warnings.simplefilter("ignore")  # its arrays cannot be written to, as PyTorch remarks
    without_torchvision()
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    with fresh(folder) as needed:
        if needed:
            width = rows_of(x, y).__next__()[0].shape[0]
            with MDSWriter(out=folder, columns={"x": f"ndarray:float32:{width}", "y": "int"}) as writer:
                for row, label in rows_of(x, y):
                    writer.write({"x": row, "y": int(label)})

    def batches(seed):
        clean_stale_shared_memory()
        settings = {"shuffle": True, "shuffle_algo": "py1e", "shuffle_seed": seed, "num_canonical_nodes": 1}
        data = StreamingDataset(local=folder, batch_size=batch, **settings)
        yield from (item["y"] for item in StreamingDataLoader(data, batch_size=batch))

    return walker(batches)


def webdataset(pattern, batch, workers):
    """Iterate over WebDataset shards in storage order, images as bytes, batched by the package."""
    import webdataset as wds

    def as_int(data):
        return int(data)

    def batches(_):
        shards = wds.WebDataset(pattern, shardshuffle=False).map_dict(cls=as_int).to_tuple("jpg", "cls")
        loader = wds.WebLoader(shards.batched(batch, partial=True), batch_size=None, num_workers=workers)
        yield from (item[1] for item in loader)

    return walker(batches)


def litdata_tokens(tokens, ends, batch, folder):
    """Iterate over LitData: documents of numbers in chunks of 64 MB, its shuffle, lists of tensors."""
    import numpy as np
    from litdata import StreamingDataLoader, StreamingDataset, optimize

    data, places = np.load(tokens, mmap_mode="r"), np.load(ends)
    if not Path(folder).exists():
        documents = partial(document, data, places)
        optimize(documents, list(range(len(places) - 1)), folder, chunk_bytes="64MB", num_workers=1, verbose=False)

    def batches(seed):
        rows = StreamingDataset(folder, shuffle=True, seed=seed)
        yield from StreamingDataLoader(rows, batch_size=batch, num_workers=0, collate_fn=list)

    return walker(batches)


def document(data, places, row):
    """Return a document; a module-level function for another process."""
    return data[places[row] : places[row + 1]].copy()


def walker(batches):
    """Make a run of a generator that yields the labels of each batch."""

    def run(labels=None, seed=0, limit=None, **_):
        return walk(batches(seed), lambda item: item, labels, limit)  # a generator: opening is in the time

    return run


def maps(x, y):
    """Map both arrays again, since mapped pages cannot be dropped from the cache."""
    import numpy as np

    # Written to nowhere ("c"), since PyTorch warns of tensors that cannot be written.
    return np.load(x, mmap_mode="c"), np.load(y, mmap_mode="c")


def rows_of(x, y):
    """Yield rows and their labels."""
    features, labels = maps(x, y)
    for start in range(0, len(features), CHUNK):
        yield from zip(features[start : start + CHUNK], labels[start : start + CHUNK], strict=True)


@contextlib.contextmanager
def fresh(folder):
    """Return whether a folder must still be filled; an incomplete one is removed."""
    path = Path(folder)
    needed = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield needed
    except BaseException:
        shutil.rmtree(path)
        raise


def without_torchvision():
    """Replace torchvision, which MosaicML streaming imports but does not need here."""
    parts = {"": [], ".datasets": ["VisionDataset"], ".transforms": [], ".transforms.functional": ["to_tensor"]}
    for name, classes in parts.items():
        module = types.ModuleType(f"torchvision{name}")
        module.__spec__ = ModuleSpec(module.__name__, None)
        for part in classes:
            setattr(module, part, type(part, (), {}))
        sys.modules[module.__name__] = module


JOBS = {
    "map": map_style,
    "getitems": getitems,
    "hf_iterable": hf_iterable,
    "grain": grain_records,
    "mosaicml": mosaicml,
    "webdataset": webdataset,
    "litdata_tokens": litdata_tokens,
}
