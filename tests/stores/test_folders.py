"""Folders of images in stores, and indexes of TFRecord files beside them there."""

import pickle
import shutil

import numpy as np
import pytest
import tfrecords

import corgipile as cp
from corgipile.errors import BadArgument, CorruptFile, MissingFile
from corgipile.tables.opening import write_indexes

pytest.importorskip("obstore")
CLASSES, EACH = ("cat", "dog", "eel"), 20


@pytest.fixture
def images(objects):
    """Give the folder of a bucket that has images."""
    folder = objects.root / "bucket" / "images"
    for number, name in enumerate(CLASSES):
        (folder / name / "more").mkdir(parents=True)
        for i in range(EACH):
            inside = folder / name / ("more" if i % 3 == 0 else "")
            (inside / f"{i}.JPG").write_bytes(bytes([number, i]) * (i * 50))
    (folder / "cat" / ".hidden.jpg").write_bytes(b"no row")
    (folder / "cat" / "notes.txt").write_text("no row")
    (folder / "metadata.csv").write_text("about,them\n1,2\n")
    return folder


def test_rows_are_those_of_the_folder(images, objects):
    here = cp.open(images, format="images", paths=True)
    objects.log()
    there = cp.open("s3://bucket/images", format="images", paths=True)
    assert len(objects.log()) <= 3
    assert there.schema.equals(here.schema, check_metadata=True)
    rows = np.random.default_rng(0).permutation(len(here))
    for table in (there, pickle.loads(pickle.dumps(there))):  # noqa: S301 - ours
        assert table.read(0, len(here)).equals(here.read(0, len(here)))
        assert table.take(rows).equals(here.take(rows))
        assert table.take_bytes(rows[:9], "image") == here.take_bytes(rows[:9], "image")
        assert table.fingerprint == there.fingerprint


@pytest.mark.parametrize("order", ["riffle", "full"])
def test_every_image_comes_once_and_is_fetched_once(images, objects, order):
    (images / "metadata.csv").unlink()
    loader = cp.Loader(cp.open("s3://bucket/images/", paths=True), batch_size=7, order=order, memory="1MB")
    objects.log()
    seen = {path: image for batch in loader for path, image in zip(batch["path"], batch["image"], strict=True)}
    assert seen == {path.relative_to(images).as_posix(): path.read_bytes() for path in images.rglob("*.JPG")}
    assert len({line.path for line in objects.log()}) == len(seen) - len(CLASSES)  # empty ones need no request


def test_what_is_no_folder_of_images_says_so(images):
    table = cp.open("s3://bucket/images/", format="images")
    (images / "dog" / "1.JPG").write_bytes(b"anything!" * 3)
    with pytest.raises(CorruptFile, match=r"dog/1\.JPG was changed"):
        table.read(0, len(table))
    for path in (images / "eel").rglob("*.JPG"):
        path.rename(path.with_suffix(".txt"))
    with pytest.raises(MissingFile, match="eel has no image"):
        cp.open("s3://bucket/images/", format="images")
    with pytest.raises(BadArgument, match="must be a local folder to be opened as delta"):
        cp.open("s3://bucket/images/", format="delta")


@pytest.mark.parametrize("end", [".idx", ".index"])
def test_the_index_beside_a_tfrecord_file_spares_the_scan(objects, tmp_path, monkeypatch, end):
    monkeypatch.setenv("CORGIPILE_CACHE", str(tmp_path / "cache"))
    path = objects.root / "bucket" / "a.tfrecord"
    tfrecords.write(path, [b"%d" % i * 500 for i in range(2000)])
    here = cp.open(path)
    [made] = write_indexes(str(path))
    index = path.with_name(f"a.tfrecord{end}")
    shutil.move(made.path, index)
    objects.log()
    there = cp.open("s3://bucket/a.tfrecord")
    assert sum(line.sent for line in objects.log()) < path.stat().st_size / 4
    assert there.read(10, 1999).equals(here.read(10, 1999))
    shutil.move(index, index.with_name("other.idx"))
    table = cp.open("s3://bucket/a.tfrecord", index="s3://bucket/other.idx")
    assert table.take([5, 1999]).equals(here.take([5, 1999]))
    with pytest.raises(MissingFile, match="gone"):
        cp.open("s3://bucket/a.tfrecord", index="s3://bucket/gone.idx")
