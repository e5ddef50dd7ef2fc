"""Loaders of other projects over tables in an S3 object store, set up as their guides recommend.

A job writes its files into the server's folder, from the files there, and reads them by S3.
"""
# ruff: noqa: PLC0415 - each job imports its own peer

import itertools
import os
import shutil
import tempfile
import time
import warnings
from pathlib import Path

from peer_loaders import fresh, without_torchvision
from peer_walk import walk

AHEAD = 8  # batches that are read at the same time by those that leave it to the user
CONNECTIONS = 64  # where ten are the default


def hf_remote(root, batch, variables):
    """Iterate over Hugging Face datasets: Parquet streamed, with a shuffle buffer of its usual size."""
    os.environ.update(variables)
    os.environ["HF_HUB_OFFLINE"] = "1"
    from datasets import load_dataset

    client = {"endpoint_url": variables["AWS_ENDPOINT_URL"]}
    options = {"key": "tester", "secret": "secret", "client_kwargs": client}

    def batches(seed):
        path = f"s3://{Path(root).name}/rows.parquet"
        data = load_dataset("parquet", data_files=path, split="train", streaming=True, storage_options=options)
        data = data.with_format("numpy").shuffle(seed=seed, buffer_size=10_000)
        yield from (item["label"] for item in data.iter(batch_size=batch))

    return walker(batches)


def mosaicml_remote(root, batch, variables):
    """Iterate over MosaicML streaming: MDS shards of default size, downloaded when needed; shuffle py1e."""
    os.environ.update(variables)
    warnings.simplefilter("ignore")
    without_torchvision()
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    folder = Path(root) / "mds"
    with fresh(folder) as needed:
        if needed:
            with MDSWriter(out=str(folder), columns={"x": "ndarray:float32:28", "y": "int"}) as writer:
                for x, y in rows_of(root):
                    for row, label in zip(x, y, strict=True):
                        writer.write({"x": row, "y": int(label)})

    def batches(seed):
        clean_stale_shared_memory()
        local = tempfile.mkdtemp()
        settings = {"shuffle": True, "shuffle_algo": "py1e", "shuffle_seed": seed, "num_canonical_nodes": 1}
        try:
            data = StreamingDataset(remote=f"s3://{Path(root).name}/mds", local=local, batch_size=batch, **settings)
            yield from (item["y"] for item in StreamingDataLoader(data, batch_size=batch))
        finally:
            shutil.rmtree(local, ignore_errors=True)

    return walker(batches)


def lance_take(root, batch, variables):
    """Read random rows of Lance by `take`, some batches concurrently."""
    import lance
    import numpy as np
    import pyarrow as pa

    folder = Path(root) / "rows.lance"
    with fresh(folder.with_name("lance.made")) as needed:
        if needed:
            with pa.ipc.open_file(Path(root) / "rows.arrow") as reader:
                lance.write_dataset(reader.read_all(), str(folder), mode="overwrite")
    keys = {"aws_access_key_id": "tester", "aws_secret_access_key": "secret", "aws_region": "us-east-1"}
    options = {**keys, "aws_endpoint": variables["AWS_ENDPOINT_URL"], "allow_http": "true"}

    def batches(seed):
        data = lance.dataset(f"s3://{Path(root).name}/rows.lance", storage_options=options)
        order = np.random.default_rng(seed).permutation(data.count_rows())
        wanted = (np.sort(order[at : at + batch]) for at in range(0, len(order), batch))
        yield from at_once(lambda rows: data.take(rows)["label"].to_numpy(), wanted)

    return walker(batches)


def s3fs_map(root, batch, variables):
    """A map-style dataset over rows of fixed width by s3fs, which requests a batch's rows together."""
    os.environ.update(variables)
    import numpy as np
    import s3fs

    path = Path(root) / "rows.bin"
    row = np.dtype([("x", np.float32, 28), ("y", np.int32)])
    with fresh(path.with_name("bin.made")) as needed:
        if needed:
            with path.open("wb") as file:
                for x, y in rows_of(root):
                    data = np.empty(len(y), row)
                    data["x"], data["y"] = x, y
                    file.write(data.tobytes())

    def batches(seed):
        client = {"endpoint_url": variables["AWS_ENDPOINT_URL"]}
        pool = {"max_pool_connections": CONNECTIONS}
        system = s3fs.S3FileSystem(key="tester", secret="secret", client_kwargs=client, config_kwargs=pool)  # noqa: S106
        name = f"{Path(root).name}/rows.bin"
        order = np.random.default_rng(seed).permutation(system.info(name)["size"] // row.itemsize)
        for at in range(0, len(order), batch):
            starts = (order[at : at + batch] * row.itemsize).tolist()
            got = system.cat_ranges([name] * len(starts), starts, [start + row.itemsize for start in starts])
            yield np.frombuffer(b"".join(got), row)["y"]

    return walker(batches)


def at_once(read, wanted):
    """Yield the results of reads in order, reading ahead."""
    from collections import deque
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(AHEAD) as pool:
        coming = deque(pool.submit(read, one) for one in itertools.islice(wanted, AHEAD))
        while coming:
            yield coming.popleft().result()
            coming.extend(pool.submit(read, one) for one in itertools.islice(wanted, 1))


def rows_of(root):
    """Yield features and labels of the arrays next to the bucket, some rows at a time."""
    import numpy as np

    x, y = (np.load(Path(root).parent / name, mmap_mode="r") for name in ("x.npy", "y.npy"))
    for at in range(0, len(y), 1 << 16):
        yield x[at : at + (1 << 16)], y[at : at + (1 << 16)]


def walker(batches):
    """Make a run of a generator that yields the labels of each batch; it ends after ``most`` seconds."""

    def some(seed, most):
        begin = time.perf_counter()
        for batch in batches(seed):
            yield batch
            if time.perf_counter() - begin > most:
                return

    def run(labels=None, seed=0, limit=None, most=15, **_):
        return walk(some(seed, most), lambda item: item, labels, limit)

    return run


JOBS = {"hf remote": hf_remote, "mosaicml remote": mosaicml_remote, "lance take": lance_take, "s3fs map": s3fs_map}
