"""Compressed text has the rows of the plain text, decompressed in bounded steps."""

import bz2
import gzip
import json
import lzma
import pickle

import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import CorruptFile, UnknownFormat
from corgipile.tables.formats.text import packed
from corgipile.tables.io.sources import files_read

CSV = b"a,x,y\n" + b"".join(b"NO,%d,%d\n" % (at % 7, at % 2) for at in range(3000))
LINES = b"".join(json.dumps({"x": at % 7, "y": at % 2}).encode() + b"\n" for at in range(3000))
WAYS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda text: pa.compress(text, "zstd", asbytes=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("end", "text"), [("csv", CSV), ("tsv", CSV.replace(b",", b"\t")), ("jsonl", LINES)])
def test_compressed_text_has_the_rows_of_the_text(tmp_path, way, end, text):
    plain, path = tmp_path / f"t.{end}", tmp_path / f"t.{end}.{way}"
    plain.write_bytes(text)
    path.write_bytes(WAYS[way](text))
    table, wanted = cp.open(path), cp.open(plain)
    assert table.schema == wanted.schema
    assert table.read(0, 3000) == wanted.read(0, 3000)
    assert table.take([2999, 5]) == wanted.take([2999, 5])
    assert pickle.loads(pickle.dumps(table)).read(1, 3) == wanted.read(1, 3)  # noqa: S301
    how = {"label": "y", "features": ["x"], "epochs": 1, "order": "no_shuffle"}
    assert (cp.train(path, **how).coef == cp.train(plain, **how).coef).all()
    path.write_bytes(WAYS[way](text)[:-12])
    with pytest.raises(CorruptFile, match=f"t.{end}.{way}"):
        cp.open(path)


def test_members_follow_each_other_and_files_are_one_table(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV[:999]) + gzip.compress(CSV[999:]))
    (tmp_path / "b.csv").write_bytes(CSV)
    assert len(cp.open(tmp_path / "a.csv.gz")) == 3000
    assert len(cp.open([tmp_path / "a.csv.gz", tmp_path / "b.csv"])) == 6000


def test_text_is_unpacked_in_parts_and_not_at_all_without_spill_files(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "PART_BYTES", 1000)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV))
    sizes, write = [], packed.SpillWriter.write
    monkeypatch.setattr(packed.SpillWriter, "write", lambda self, data: sizes.append(len(data)) or write(self, data))
    assert len(cp.open(tmp_path / "a.csv.gz")) == 3000
    assert max(sizes) <= 1000
    with pytest.raises(UnknownFormat, match="needs a spill file, but spill files are off"):
        cp.open(tmp_path / "a.csv.gz", spill="off")


@pytest.mark.parametrize(("end", "text"), [("csv", CSV), ("tsv", CSV.replace(b",", b"\t")), ("ndjson", LINES)])
def test_a_folder_of_compressed_text_is_one_table(tmp_path, monkeypatch, end, text):
    plain, folder = tmp_path / "plain", tmp_path / "packed"
    head, lines = (b"", text) if end == "ndjson" else text.split(b"\n", 1)
    head += b"\n" * bool(head)
    for number, way in enumerate(["gz", "GZ", "bz2", "xz", "zst", ""]):
        inside = f"day={number % 2}/{number}.{end}"
        part = head + lines[: (number + 1) * len(lines) // 7].rpartition(b"\n")[0] + b"\n"
        for where, name, data in (plain, inside, part), (folder, f"{inside}.{way}".rstrip("."), part):
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            (where / name).write_bytes(WAYS[way.lower()](data) if name.lower().endswith(tuple(WAYS)) else data)
    (folder / "README.md").write_text("about the rows")
    made, new = [], packed.SpillWriter.__init__
    monkeypatch.setattr(packed.SpillWriter, "__init__", lambda self, *at: made.append(at) or new(self, *at))
    table, wanted = cp.open(folder), cp.open(plain)
    assert len(made) == 1  # descriptors do not grow with the files
    assert table.schema == wanted.schema
    assert "day" in table.schema.names
    assert table.read(0, len(table)) == wanted.read(0, len(wanted))
    assert pickle.loads(pickle.dumps(table)).take([len(table) - 1, 5]) == wanted.take([len(table) - 1, 5])  # noqa: S301
    assert len({file.place for file in files_read(table)}) >= 6
    assert cp.convert(folder, tmp_path / "a.arrow") == len(wanted)
    how = {"label": "y", "features": ["x"], "epochs": 1, "order": "no_shuffle"}
    assert (cp.train(folder, **how).coef == cp.train(plain, **how).coef).all()


def test_a_folder_of_compressed_text_follows_the_rules_of_folders(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES))
    with pytest.raises(UnknownFormat, match=r"a.csv.gz \(csv\), b.jsonl.gz \(jsonl\)"):
        cp.open(tmp_path)
    assert len(cp.open(tmp_path, format="csv")) == 3000
    (tmp_path / "b.jsonl.gz").unlink()
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(CSV)[:-12])
    with pytest.raises(CorruptFile, match=r"c\.csv\.gz"):
        cp.open(tmp_path)
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(CSV))
    with pytest.raises(UnknownFormat, match="needs a spill file, but spill files are off"):
        cp.open(tmp_path, spill="off")
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"")
    assert cp.open(tmp_path).schema.names == ["image", "label"]  # text may describe the images
