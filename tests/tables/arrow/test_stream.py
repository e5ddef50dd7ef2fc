import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile import convert
from corgipile.errors import BadArgument, CorruptFile, MissingFile, UnknownFormat
from corgipile.tables import ConcatTable
from corgipile.tables import open as open_table
from corgipile.tables.formats.arrow.stream import ArrowStream
from corgipile.tables.io.files import File


def write(path, rows, codec=None, batch=100):
    with pa.ipc.new_stream(path, rows.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(rows, max_chunksize=batch)
    return path


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 70),
    batch=st.integers(1, 40),
    codec=st.sampled_from([None, "lz4", "zstd"]),
    nulls=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_agrees_with_rows_written(folder, laws, rows_of, seed, count, batch, codec, nulls):
    rows = rows_of(count, seed, nulls)
    laws(ArrowStream(write(folder / "law.arrow", rows, codec, batch)), rows, np.random.default_rng(seed))


def test_manners(tmp_path, manners, layout_law, rows_of):
    table = open_table(write(tmp_path / "a.arrow", rows_of(250)))
    assert isinstance(table, ArrowStream)
    manners(table)
    layout_law(table, ["features", "label"])


def test_opening_reads_no_rows(tmp_path, monkeypatch):
    path = write(tmp_path / "a.arrow", pa.table({"text": ["x" * 1000] * 10_000}), batch=1000)
    reads = []
    read = File.read
    monkeypatch.setattr(File, "read", lambda file, at, size: reads.append(size) or read(file, at, size))
    table = ArrowStream(path)
    assert len(table) == 10_000
    assert sum(reads) < 30_000
    reads.clear()
    assert table.take([9000, 17, 4000])["text"].to_pylist() == ["x" * 1000] * 3
    assert sum(reads) < 10_000


def test_wide_schemas_have_long_heads(tmp_path, laws):
    rows = pa.table({f"column {i}": np.arange(10) + i for i in range(200)})
    laws(ArrowStream(write(tmp_path / "a.arrow", rows, batch=4)), rows, np.random.default_rng(0))


def test_streams_that_cannot_be_read_in_place(tmp_path):
    words = pa.table({"word": pa.array(["a", "b"]).dictionary_encode()})
    with pytest.raises(UnknownFormat, match=r"dictionary columns.*`corgipile convert`"):
        open_table(write(tmp_path / "d.arrow", words))
    assert convert(tmp_path / "d.arrow", tmp_path / "out.arrow") == 2
    data = write(tmp_path / "t.arrow", pa.table({"x": range(1000)})).read_bytes()
    for cut in (5, 60, len(data) // 2, len(data) - 9):
        (tmp_path / "t.arrow").write_bytes(data[:cut])
        with pytest.raises(CorruptFile, match=r"t.arrow, message at byte \d+"):
            open_table(tmp_path / "t.arrow")
    for end, message in ((data[:-8], "ends without an end mark.*`corgipile convert`"), (data * 2, "bytes follow")):
        (tmp_path / "t.arrow").write_bytes(end)
        with pytest.raises(CorruptFile, match=message):
            open_table(tmp_path / "t.arrow")
    (tmp_path / "t.arrow").write_bytes(data[:-8])
    assert convert(tmp_path / "t.arrow", tmp_path / "all.arrow") == 1000
    with pytest.raises(UnknownFormat, match="is not an Arrow IPC stream"):
        ArrowStream(tmp_path / "out.arrow")


def test_damaged_streams_never_crash(folder, damage, survives, rows_of):
    rows = rows_of(25, nulls=True).select(["features", "label", "text", "words", "flag"])
    data = write(folder / "whole.arrow", rows, batch=10).read_bytes()

    @given(broken=damage(data))
    @settings(max_examples=300, deadline=None, derandomize=True)
    def check(broken):
        survives(folder / "broken.arrow", broken, "arrows")

    check()


FEATURES = json.dumps({"info": {"features": {"text": {"dtype": "string", "_type": "Value"}}}})


def save_to_disk(folder, shards):
    """Write rows like the datasets package."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(shards):05}.arrow" for i in range(len(shards))]
    for name, rows in zip(names, shards, strict=True):
        write(folder / name, rows.replace_schema_metadata({"huggingface": FEATURES}), batch=1000)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def shards(rows, count):
    parts = [{"text": [f"row {i}" for i in part], "label": part} for part in np.array_split(np.arange(rows), count)]
    return [pa.table(part) for part in parts]


def test_saved_datasets(tmp_path, manners):
    folder = save_to_disk(tmp_path / "set", shards(3000, 2))
    write(folder / "cache-0123.arrow", pa.table({"other": [1]}))
    table = open_table(folder)
    assert isinstance(table, ConcatTable)
    assert len(table) == 3000
    assert table.take([2999, 1])["text"].to_pylist() == ["row 2999", "row 1"]
    assert table.schema.metadata == {b"huggingface": FEATURES.encode()}
    manners(table)
    assert pickle.loads(pickle.dumps(table)).fingerprint == table.fingerprint  # noqa: S301
    assert convert(folder, tmp_path / "out.arrow") == 3000
    converted = open_table(tmp_path / "out.arrow")
    assert converted.schema.equals(table.schema, check_metadata=True)
    assert converted.read(0, 3000).equals(table.read(0, 3000))
    with pytest.raises(MissingFile, match=r"no file ending in \.npy"):
        open_table(folder, format="numpy")


def test_splits_and_broken_folders(tmp_path):
    for split in ("train", "test"):
        save_to_disk(tmp_path / "sets" / split, shards(10, 1))
    (tmp_path / "sets" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    for ask in (open_table, lambda path: convert(path, tmp_path / "out.arrow")):
        with pytest.raises(BadArgument, match=r"sets holds the splits train, test; open a split, such as .*train"):
            ask(tmp_path / "sets")
    assert len(open_table(tmp_path / "sets" / "train")) == 10
    state = tmp_path / "sets" / "test" / "state.json"
    for text, error, message in [
        ("{", CorruptFile, "is not JSON"),
        ("[]", CorruptFile, "must hold a JSON object, got list"),
        ("{}", CorruptFile, "must list _data_files"),
        ('{"_data_files": []}', CorruptFile, "must list at least one data file"),
        ('{"_data_files": [{"filename": "a"}]}', MissingFile, "no file at"),
        ('{"_indices_data_files": [1]}', UnknownFormat, "flatten_indices"),
    ]:
        state.write_text(text)
        with pytest.raises(error, match=message):
            open_table(state.parent)


GROWTH = """
import sys
import corgipile as cp
peak = lambda: int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) << 10
cp.convert(sys.argv[3], sys.argv[2])  # imports what is needed
before = peak()
cp.convert(sys.argv[1], sys.argv[2], overwrite=True)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
def test_conversion_takes_little_memory(tmp_path):
    rows = [pa.table({"text": ["x" * 1000] * 50_000, "label": range(50_000)})] * 4
    folder = save_to_disk(tmp_path / "set", rows)
    tiny = save_to_disk(tmp_path / "tiny", [rows[0].slice(0, 10)])
    for source in (folder, folder / "data-00000-of-00004.arrow"):
        words = [sys.executable, "-c", GROWTH, str(source), str(tmp_path / "out.arrow"), str(tiny)]
        grown = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        assert grown < 50 << 20


@pytest.mark.parametrize("count", [0, 1, 70])
def test_streams_of_arrow_before_0_15(tmp_path, laws, rows_of, count):
    rows = rows_of(count, 0, True)  # noqa: FBT003 - nulls
    for version in (pa.ipc.MetadataVersion.V4, pa.ipc.MetadataVersion.V5):
        options = pa.ipc.IpcWriteOptions(use_legacy_format=True, metadata_version=version)
        path = tmp_path / f"{version}.arrows"
        with pa.ipc.new_stream(path, rows.schema, options=options) as writer:
            writer.write_table(rows, max_chunksize=20)
        laws(open_table(path), rows, np.random.default_rng(0))
    data = path.read_bytes()
    for end in range(4, len(data), 61):
        (tmp_path / "cut.arrows").write_bytes(data[:end])
        with pytest.raises((CorruptFile, UnknownFormat)):
            open_table(tmp_path / "cut.arrows").read(0, count)
