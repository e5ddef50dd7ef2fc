"""A peer process: runs in the peers' environment, times itself, and answers requests (JSON lines) over pipes."""
# ruff: noqa: PLC0415 - each job imports its own peer

import json
import sys
import time

import peer_learners
import peer_loaders
import peer_remote
import peer_text
from peer_walk import timed, walk


def sklearn_sgd(path, rate):
    """Fit SGDClassifier by partial_fit, one epoch over rows in memory."""
    import pyarrow as pa
    from sklearn.linear_model import SGDClassifier

    table = pa.ipc.open_file(path).read_all().combine_chunks()
    y = table["label"].to_numpy()
    x = table["features"].combine_chunks().flatten().to_numpy().reshape(len(y), -1)

    def run(**_):
        model = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=rate)
        seconds = timed(lambda: model.partial_fit(x, y, classes=[0, 1]))
        return {"seconds": seconds, "rows": len(y), "accuracy": float(model.score(x[::7], y[::7]))}

    return run


def sklearn_sparse(path, rate):
    """Fit SGDClassifier by partial_fit, one epoch over sparse rows in memory."""
    import pyarrow as pa
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import SGDClassifier

    table = pa.ipc.open_file(path).read_all().combine_chunks()
    y, (indices, values) = table["label"].to_numpy(), (table[f"features_{part}"].combine_chunks() for part in "kv")
    ends, width = indices.offsets.to_numpy(), int(table.schema.metadata[b"corgipile.dims"])
    x = csr_matrix((values.values.to_numpy(), indices.values.to_numpy(), ends), (len(y), width))

    def run(**_):
        model = SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=rate)
        seconds = timed(lambda: model.partial_fit(x, y, classes=[0, 1]))
        return {"seconds": seconds, "rows": len(y)}

    return run


def torch_loader(x, y, batch):
    """Iterate over DataLoader(TensorDataset, shuffle=True), as in tutorials, with rows in memory."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    tensors = TensorDataset(torch.from_numpy(np.load(x)), torch.from_numpy(np.load(y)))

    def run(labels=None, **_):
        return walk(DataLoader(tensors, batch_size=batch, shuffle=True), lambda item: item[1], labels)

    return run


def scdataset(x, y, batch, block, fetch):
    """Iterate over scDataset with block shuffling on memory-mapped arrays."""
    import numpy as np
    from scdataset import BlockShuffling, MultiIndexable, scDataset
    from torch.utils.data import DataLoader

    def run(labels=None, seed=0, limit=None, **_):
        start = time.perf_counter()
        arrays = MultiIndexable(x=np.load(x, mmap_mode="r"), y=np.load(y, mmap_mode="r"))
        strategy = BlockShuffling(block_size=block)
        data = scDataset(arrays, strategy, batch_size=batch, fetch_factor=fetch, seed=seed)
        opening = time.perf_counter() - start
        answer = walk(DataLoader(data, batch_size=None), lambda item: item["y"], labels, limit)
        return {**answer, "seconds": answer["seconds"] + opening}

    return run


def scdataset_cells(path, column, batch, block, fetch):
    """Iterate over scDataset on an AnnData file on disk, by its own transform: dense batches and a label."""
    from functools import partial

    import anndata
    from scdataset import BlockShuffling, scDataset
    from scdataset.transforms import adata_to_mindex
    from torch.utils.data import DataLoader

    def run(labels=None, seed=0, limit=None, **_):
        cells = anndata.read_h5ad(path, backed="r")
        known = cells.obs[column].cat.codes.to_numpy()
        cells.obs[column] = known
        transform = partial(adata_to_mindex, columns=[column])
        strategy = BlockShuffling(block_size=block)
        data = scDataset(cells, strategy, batch_size=batch, fetch_factor=fetch, fetch_transform=transform, seed=seed)
        return walk(DataLoader(data, batch_size=None), lambda item: item[column], labels, limit)

    return run


def hf_random(path, column):
    """Read Hugging Face datasets by lists of row numbers, 256 at a time."""
    import numpy as np
    from datasets import Dataset

    def run(numbers, **_):
        wanted = np.load(numbers)
        seen = []

        def read():
            data = Dataset.from_file(path).with_format("numpy")
            seen.extend(data[wanted[at : at + 256]][column] for at in range(0, len(wanted), 256))

        seconds = timed(read)
        got = np.concatenate(seen)
        return {"seconds": seconds, "rows": len(got), "sum": int(got.sum())}

    return run


def tfrecord_queue(path, index, batch, queue):
    """Iterate over the tfrecord package's dataset with its shuffle queue, batched by DataLoader."""
    import torch
    from tfrecord.torch.dataset import TFRecordDataset
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    kinds = {"x": "float", "label": "int"}

    def run(labels=None, **_):
        data = TFRecordDataset(path, index, kinds, shuffle_queue_size=queue)
        return walk(DataLoader(data, batch_size=batch), lambda item: item["label"].ravel(), labels)

    return run


def hf_concurrent(path, source):
    """Iterate over a cold Hugging Face dataset behind DataLoader, as shipped and within corgipile's Concurrent."""
    from pathlib import Path

    import numpy as np
    from datasets import Dataset
    from pagecache import bytes_from_device, drop, unmap
    from torch.utils.data import DataLoader

    sys.path.insert(0, source)
    from corgipile.torch import Concurrent

    data = Dataset.from_file(path).with_format("numpy")

    def run(numbers, threads, ahead, **_):
        wanted = np.load(numbers)
        batches = [wanted[at : at + 256].tolist() for at in range(0, len(wanted), 256)]
        unmap(Path(path))
        drop(Path(path))
        before, seen = bytes_from_device(), []

        def read():
            if not threads:
                for rows in DataLoader(data, batch_sampler=batches, collate_fn=list):
                    seen.extend(row["label"] for row in rows)
                return
            with Concurrent(data, threads=threads) as rows_ahead:
                sampler = rows_ahead.ahead(batches, batches=ahead)
                for rows in DataLoader(rows_ahead, batch_sampler=sampler, collate_fn=list):
                    seen.extend(row["label"] for row in rows)

        seconds = timed(read)
        return {"seconds": seconds, "rows": len(seen), "sum": int(sum(seen)), "read": bytes_from_device() - before}

    return run


JOBS = {
    "sklearn": sklearn_sgd,
    "sklearn sparse": sklearn_sparse,
    "torch": torch_loader,
    "scdataset": scdataset,
    "scdataset cells": scdataset_cells,
    "hf": hf_random,
    "hf concurrent": hf_concurrent,
    "tfrecord": tfrecord_queue,
    "learner": peer_learners.learner,
    **peer_loaders.JOBS,
    **peer_remote.JOBS,
    **peer_text.JOBS,
}


def main():
    """Answer requests until the pipe closes; the first one names the job."""
    out, sys.stdout = sys.stdout, sys.stderr
    run = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if run is None:
                run, reply = JOBS[request.pop("job")](**request), {}
            else:
                reply = run(**request)
        except Exception as error:  # noqa: BLE001  # whatever it is, the asker is told
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=out, flush=True)


if __name__ == "__main__":
    main()
