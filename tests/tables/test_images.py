import io
import json
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile import Loader
from corgipile.errors import BadArgument, CorruptFile, MissingExtra, MissingFile, ReadFailed, UnknownFormat
from corgipile.tables import ImageFolder, decode_image
from corgipile.tables import open as open_table


def write(folder, files):
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def expected_of(files):
    """Return the expected rows of a folder of these files."""
    classes = sorted({name.split("/")[0] for name in files})
    names = sorted(files, key=lambda name: (name.split("/")[0], name))
    return pa.table(
        {
            "image": pa.array([files[name] for name in names], pa.binary()),
            "label": pa.array([classes.index(name.split("/")[0]) for name in names], pa.int64()),
            "path": names,
        }
    )


@given(
    files=st.dictionaries(
        st.tuples(st.sampled_from("abé"), st.sampled_from(["", "in/", "in/side/"]), st.integers(0, 99)).map(
            lambda parts: f"{parts[0]}/{parts[1]}{parts[2]}.{'JPEG' if parts[2] % 2 else 'png'}"
        ),
        st.binary(max_size=50),
        min_size=1,
        max_size=30,
    ),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_agrees_with_files_written(tmp_path_factory, laws, files, seed):
    folder = write(tmp_path_factory.mktemp("images"), files)
    laws(ImageFolder(folder, paths=True), expected_of(files), np.random.default_rng(seed))


def numbered(rows):
    return {f"{'cat' if i < rows // 2 else 'dog'}/{i:04}.jpg": b"%d" % i * (i % 7 + 1) for i in range(rows)}


def test_manners(tmp_path, manners):
    files = numbered(200)
    write(tmp_path, files | {"README.md": b"", "cat/notes.txt": b"", "cat/.hidden.jpg": b"", ".git/a.jpg": b""})
    table = open_table(tmp_path)
    assert isinstance(table, ImageFolder)
    manners(table)
    assert table.schema.names == ["image", "label"]
    assert json.loads(table.schema.metadata[b"corgipile.classes"]) == table.classes == ["cat", "dog"]
    assert table.nbytes == sum(map(len, files.values()))
    assert table.layout(["label"]) is None
    assert open_table(tmp_path, paths=True).read(0, 1, ["path"]).to_pydict() == {"path": ["cat/0000.jpg"]}
    with Loader(table, batch_size=32) as loader:
        images = [image for batch in loader for image in batch["image"]]
    assert sorted(images) == sorted(files.values())


def test_labels_are_told_without_reading(tmp_path):
    table = open_table(write(tmp_path, numbered(10)))
    for path in tmp_path.glob("*/*.jpg"):
        path.unlink()
    assert table.read(3, 7, ["label"]).to_pydict() == {"label": [0, 0, 1, 1]}
    with pytest.raises(MissingFile, match=r"no file at .*cat/0003.jpg"):
        table.read(3, 7)


def test_labels_reach_torch_as_losses_take_them(tmp_path):
    torch, data = pytest.importorskip("torch"), pytest.importorskip("corgipile.torch")
    table = open_table(write(tmp_path, numbered(10)))
    loaders = Loader(table, batch_size=10, format="torch"), data.CorgiPileDataset(table, batch_size=10)
    for batch in (next(iter(loader)) for loader in loaders):
        assert batch["label"].dtype == torch.int64
        assert torch.nn.functional.cross_entropy(torch.zeros(10, 2), batch["label"]) > 0


def test_states_saved_when_labels_were_narrower_still_serve(tmp_path):
    write(tmp_path / "pictures", {"cat/1.png": b"abc", "dog/1.png": b"abc"})
    assert ImageFolder(tmp_path / "pictures").fingerprint == "59084c678898366043c74fdc890330fa"


def test_files_of_tables_come_first(tmp_path):
    np.save(write(tmp_path, {"pictures/a.png": b""}) / "x.npy", np.ones(3))
    assert open_table(tmp_path).schema.names == ["features"]
    assert open_table(tmp_path, format="images").schema.names == ["image", "label"]


def test_folders_that_are_none(tmp_path):
    with pytest.raises(MissingFile, match="has no file ending in"):
        open_table(write(tmp_path / "flat", {"a.jpg": b""}))
    with pytest.raises(MissingFile, match="must have a folder of images for each class"):
        ImageFolder(tmp_path / "flat")
    write(tmp_path / "gap", {"cat/a.jpg": b"", "dog/a.txt": b""})
    with pytest.raises(MissingFile, match=r"gap/dog has no image: no file ends in .bmp"):
        open_table(tmp_path / "gap")
    with pytest.raises(MissingFile, match="no file at"):
        ImageFolder(tmp_path / "nowhere")
    (tmp_path / "gap" / "dog" / "b.png").symlink_to("nothing")
    with pytest.raises(MissingFile, match=r"no file at .*dog/b.png"):
        open_table(tmp_path / "gap")
    with pytest.raises(ReadFailed, match=r"a.jpg"):
        ImageFolder(tmp_path / "flat" / "a.jpg")
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(BadArgument, match="paths does not apply"):
        open_table(tmp_path / "x.npy", paths=True)


def test_files_that_changed(tmp_path):
    table = open_table(write(tmp_path, numbered(20)))
    for data in (b"", b"longer than before"):
        (tmp_path / "cat" / "0005.jpg").write_bytes(data)
        for ask in (lambda: table.read(0, 20), lambda: table.take([5])):
            with pytest.raises(CorruptFile, match=rf"0005.jpg must have 6 bytes .* listed, got {len(data)}"):
                ask()
    assert open_table(tmp_path).fingerprint != table.fingerprint


def test_images_are_decoded(monkeypatch):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "PNG")
    assert np.array_equal(decode_image(file.getvalue()), pixels)
    assert decode_image(file.getvalue()).flags.writeable  # torch.from_numpy warns otherwise
    assert decode_image(file.getvalue(), "L").shape == (40, 50)
    for data in (b"", b"no image at all", file.getvalue()[:1000]):
        with pytest.raises(CorruptFile, match=rf"^{len(data)} bytes that begin with .* are not a complete image"):
            decode_image(data)
        with pytest.raises(CorruptFile, match=rf"^cat/1.png: {len(data)} bytes that begin with"):
            decode_image(data, name="cat/1.png")
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtra, match=r"pip install 'corgipile\[images\]'"):
        decode_image(file.getvalue())


def test_a_loose_image_is_refused(tmp_path):
    folder = write(tmp_path / "photos", numbered(4) | {"loose.jpg": b"", ".hidden.jpg": b"", "notes.txt": b""})
    with pytest.raises(UnknownFormat, match=r"images must lie in a folder for each class, got 'loose.jpg' and 0 more"):
        open_table(folder)
    (tmp_path / "photos" / "loose.jpg").unlink()
    assert len(open_table(folder)) == 4


def test_a_loader_takes_the_class_for_the_label(tmp_path):
    table = open_table(write(tmp_path, numbered(20)))
    for said in ({}, {"label": "label"}):
        loader = cp.Loader(table, batch_size=4, **said)
        assert loader.order.title == "balanced by 'label'"
        batch = next(iter(loader))
        assert list(batch) == ["image", "label"]
        assert batch["label"].dtype == np.int64
    images, labels = next(iter(cp.Loader(table, batch_size=4, label="label", as_tuple=True)))
    assert len(images) == len(labels) == 4


def test_the_cell_of_a_dataset_is_decoded():
    pytest.importorskip("PIL.Image")
    data = b"P5 3 2 255 abcdef"
    assert (decode_image({"bytes": data, "path": None}, "L") == decode_image(data, "L")).all()
    with pytest.raises(CorruptFile, match=r"a\.jpg: 3 bytes"):
        decode_image({"bytes": b"abc", "path": "a.jpg"})
    with pytest.raises(BadArgument, match=r"an image must be bytes, got None and the path 'a\.jpg'"):
        decode_image({"bytes": None, "path": "a.jpg"})
