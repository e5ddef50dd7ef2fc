"""MDS datasets written by MosaicML's package (tests/data/mds), and errors for damaged ones."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile.errors import BadSchema, CorruptFile, MissingFile, UnknownFormat
from corgipile.tables import open as open_table
from corgipile.testing import check_damaged, check_table

DATA = Path(__file__).resolve().parents[2] / "data" / "mds"
PACKED = ("zstd", "gz", "br", "bz2", "snappy")


def expected():
    """Return the rows written, without images and pickles."""
    rows = range(5)
    return pa.table(
        {
            "b": pa.array([bytes(k) for k in rows], pa.binary()),
            "f16": pa.array(np.arange(5, dtype=np.float16)),
            "f32": pa.array([k / 8 for k in rows], pa.float32()),
            "grid": pa.array([[[k] * 3] * 2 for k in rows], pa.list_(pa.list_(pa.uint8(), 3), 2)),
            "i": pa.array([k - 3 for k in rows], pa.int64()),
            "js": [json.dumps({"k": [k, None]}) for k in rows],
            "nd": pa.array([[float(x) for x in range(k + 1)] for k in rows]),
            "nd2": pa.array([[[k, k]] * (k % 3 + 1) for k in rows], pa.list_(pa.list_(pa.int16()))),
            "ndf": pa.array([[float(k)] * (300 if k == 3 else 2) for k in rows], pa.list_(pa.float32())),
            "s": [f"né {k}" for k in rows],
            "sd": [str(k / 4) if k % 4 else str(k // 4) for k in rows],
            "sf": [k / 3 for k in rows],
            "si": [10**k for k in rows],
            "u16": pa.array(rows, pa.uint16()),
        }
    )


@pytest.mark.parametrize("name", ["plain", "zstd"])
def test_agrees_with_what_the_package_wrote(name):
    table, written = open_table(DATA / name), expected()
    assert len(table.tables) > 1
    check_table(table.select(written.schema.names), written)
    assert table.select(["pk"]).schema.types == [pa.binary()]  # never loaded


@pytest.mark.parametrize("name", PACKED)
def test_every_codec_gives_the_same_rows(name):
    rows = open_table(DATA / "plain").read(0, 5).to_pylist()
    table = open_table(DATA / name)
    assert table.read(0, 5).to_pylist() == rows
    assert table.take(np.array([4, 0])).to_pylist() == [rows[4], rows[0]]


def test_images_open_in_any_decoder():
    image = pytest.importorskip("PIL.Image")
    rows = open_table(DATA / "plain").read(0, 5, ["pil", "rgba", "png", "pngs", "pils"]).to_pylist()
    for k, row in enumerate(rows):
        found = {name: image.open(io.BytesIO(row[name])) for name in ("pil", "rgba", "png")}
        assert [one.mode for one in found.values()] == ["RGB", "RGBA", "L"]
        assert all((np.asarray(one) == k).all() and one.size == (3, 2) for one in found.values())
        assert (len(row["pngs"]), len(row["pils"])) == (k % 2 + 1, k % 3)
        assert all((np.asarray(image.open(io.BytesIO(one))) == k).all() for one in row["pils"] + row["pngs"])


def test_compressed_shards_are_unpacked_to_a_spill_file_or_in_memory(tmp_path):
    written = expected().to_pylist()
    for spill in (tmp_path, "off"):
        table = open_table(DATA / "zstd", spill=spill).select(expected().schema.names)
        assert table.read(0, 5).to_pylist() == written
    assert list(tmp_path.iterdir()) == []
    assert "unpacked" in open_table(DATA / "zstd").advice
    with cp.Loader(DATA / "zstd", batch_size=2, memory="64KB", columns=["i", "s"]) as loader:
        assert sorted(int(i) for batch in loader for i in batch["i"]) == [-3, -2, -1, 0, 1]


def test_single_rows_are_found_without_others():
    table = open_table(DATA / "simple")
    assert table.row_sizes(np.array([19, 3]), ["image", "label"]).tolist() == [19 * 19 + 8, 9 + 8]
    assert table.take_bytes(np.array([5, 0]), "image") == [bytes([5]) * 25, b""]
    assert open_table(DATA / "plain").row_sizes(np.array([0]), ["pil"]) is None
    assert table.tables[0].cuts(2).tolist()[:3] == [0, 2, 4]


def test_converting_writes_the_bytes_that_the_package_writes(tmp_path):
    assert cp.convert(open_table(DATA / "simple"), tmp_path / "ours", to="mds", shard_size="700B") == 20
    for path in (DATA / "simple").iterdir():
        ours = (tmp_path / "ours" / path.name).read_bytes()
        assert (
            json.loads(ours) == json.loads(path.read_bytes()) if path.suffix == ".json" else ours == path.read_bytes()
        )
    assert len(list((tmp_path / "ours").iterdir())) == len(list((DATA / "simple").iterdir()))


@pytest.mark.parametrize("codec", [None, "zstd", "gz"])
def test_what_is_converted_comes_back(tmp_path, codec):
    rows = pa.table(
        {
            "deep": [[{"a": k, "b": ["x", None][: k % 2 + 1]}, None] if k % 5 else None for k in range(40)],
            "money": pa.array(range(40), pa.decimal128(9, 2)),
            "truth": [k % 3 == 0 for k in range(40)],
            "x": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(80.0)), 2),
        }
    ).slice(3)
    cp.convert(rows, tmp_path / "m", to="mds", shard_size="600B", compression=codec)
    table = open_table(tmp_path / "m")
    assert len(table.tables) > 1
    back = table.read(0, 37).to_pylist()
    assert [json.loads(row["deep"]) for row in back] == rows["deep"].to_pylist()
    assert [(row["money"], row["truth"], row["x"]) for row in back] == [
        (str(row["money"]), int(row["truth"]), row["x"]) for row in rows.to_pylist()
    ]


def changed(folder, **facts):
    path = folder / "index.json"
    index = json.loads(path.read_text())
    index["shards"][0] |= facts
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("facts", "error", "says"),
    [
        ({"format": "json"}, UnknownFormat, "got 'json'"),
        ({"version": 3}, UnknownFormat, "version 3"),
        ({"samples": 99}, CorruptFile, "must have the 99 samples of the index"),
        ({"samples": -1}, CorruptFile, "samples of a shard must be a whole number, got -1"),
        ({"raw_data": None}, CorruptFile, "got None"),
        ({"raw_data": {"basename": "../x", "bytes": 1}}, CorruptFile, "'../x'"),
        ({"raw_data": {"basename": "gone.mds", "bytes": 1}}, MissingFile, "gone.mds"),
        ({"raw_data": {"basename": "shard.00000.mds", "bytes": 1}}, CorruptFile, "must have the 1 bytes of"),
        ({"column_names": ["a"]}, CorruptFile, "must list names"),
        ({"column_names": ["a"] * 5}, BadSchema, "column names must differ"),
        ({"column_sizes": ["8"] * 5}, CorruptFile, "'bytes', '8'"),
        ({"column_encodings": ["ndarray:complex64"] * 5}, BadSchema, "complex64"),
    ],
)
def test_an_index_that_is_wrong_is_refused(tmp_path, facts, error, says):
    shutil.copytree(DATA / "simple", tmp_path / "m")
    changed(tmp_path / "m", **facts)
    with pytest.raises(error, match=says):
        open_table(tmp_path / "m")


def test_an_index_that_is_none(tmp_path):
    shutil.copytree(DATA / "simple", tmp_path / "m")
    for text, error in (('{"shards": [}', CorruptFile), ('{"shards": 5}', CorruptFile), ('{"shards": []}', BadSchema)):
        (tmp_path / "m" / "index.json").write_text(text)
        with pytest.raises(error, match=r"index\.json"):
            open_table(tmp_path / "m")
    with pytest.raises(UnknownFormat, match="open its folder"):
        open_table(DATA / "simple" / "shard.00000.mds")


@given(data=st.data(), name=st.sampled_from(["plain", "zstd", "gz"]))
@settings(max_examples=60, deadline=None)
def test_damage_is_noticed_or_other_values(folder, damage, data, name):
    place = folder / name
    if not place.exists():
        shutil.copytree(DATA / name, place)
    path = min(place.glob("shard.00001*"))
    good = (DATA / name / path.name).read_bytes()
    path.write_bytes(data.draw(damage(good)))
    check_damaged(place, lambda: open_table(place))
    path.write_bytes(good)
