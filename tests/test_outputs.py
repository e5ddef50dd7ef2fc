"""No input and no file of another kind is ever overwritten, by whatever name it goes."""

import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tfrecords import frame

import corgipile as cp
from corgipile import cli, scratch, testing
from corgipile.datasets import clustered, higgs_like
from corgipile.errors import WouldOverwrite, WriteFailed
from corgipile.linear import load
from corgipile.outputs import Kind
from corgipile.tables.formats.arrow.writer import Writer
from corgipile.tables.inputs import check_target, replacing
from corgipile.tables.subset import Subset

ANY = Kind("thing", lambda _: True)


def contents(folder):
    """Return the bytes of all files, by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def save(table, path):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of tables of every kind, and a model."""
    tmp_path = tmp_path_factory.mktemp("made")
    rows = clustered(200, classes=2, features=3)
    save(rows, tmp_path / "t.arrow")
    higgs_like(tmp_path / "ours.arrow", 200, features=3)
    pq.write_table(rows, tmp_path / "t.parquet")
    x = np.stack(rows["features"].to_numpy(zero_copy_only=False))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", rows["label"].to_numpy())
    lines = [
        f"{label} 1:{row[0]} 2:{row[1]} 3:{row[2]}\n" for row, label in zip(x, rows["label"].to_pylist(), strict=True)
    ]
    (tmp_path / "t.svm").write_text("".join(lines))
    (tmp_path / "parts").mkdir()
    for at in range(3):
        save(rows.slice(60 * at, 60), tmp_path / "parts" / f"{at}.arrow")
    cp.train(tmp_path / "t.arrow", epochs=1, save=tmp_path / "m.safetensors")
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it, and an index."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    len(cp.open(tmp_path / "t.svm"))
    return tmp_path


INPUTS = {
    "t.arrow": "t.arrow",
    "ours.arrow": "ours.arrow",
    "t.parquet": "t.parquet",
    "t.svm": "t.svm",
    "x.npy,y.npy": "x.npy",
    "x.npy,{}/y.npy": "y.npy",
    "parts": "parts/1.arrow",
    "parts/": "parts/new.arrow",
    "parts/*.arrow": "parts/2.arrow",
    "parts/?.arrow": "parts/7.arrow",
    "t.svm\0": "t.svm.corgipile-index.arrow",
}


@pytest.mark.parametrize("link", ["", "hard", "soft", "dots"])
@pytest.mark.parametrize(("source", "goal"), INPUTS.items())
def test_no_command_overwrites_its_input(folder, capsys, source, goal, link):
    source = f"{folder}/{source}".replace("\0", "").replace(",{}", f",{folder}").replace(",y.npy", f",{folder}/y.npy")
    target = folder / goal
    if link == "dots":
        target = folder / ".." / folder.name / goal
    elif link and not target.exists():
        pytest.skip("no file to link to")
    elif link:
        suffix = target.suffix
        target = folder / f"link{suffix}"
        (os.link if link == "hard" else os.symlink)(folder / goal, target)
    model = f"{folder}/m.safetensors"
    before = contents(folder)
    commands = [
        ["train", source, "--epochs", "1", "--save", target],
        ["train", f"{folder}/t.arrow", "--epochs", "1", "--test", source, "--save", target],
        ["convert", source, target],
        ["reshuffle", source, target],
        ["predict", model, source, "--out", target],
    ]
    for command in (words + more for words in commands for more in ([], ["--overwrite"])):
        assert cli.main([*map(str, command)]) == 2, command
        assert "Traceback" not in capsys.readouterr().err
        assert contents(folder) == before, command


KEPT = ["notes.txt", "t.arrow", "x.npy", "t.svm", "m.safetensors", "t.parquet"]


@pytest.mark.parametrize("name", KEPT)
def test_no_command_overwrites_what_is_of_another_kind(folder, capsys, name):
    source, goal = f"{folder}/parts", f"{folder}/{name}"
    before = contents(folder)
    commands = [["predict", f"{folder}/m.safetensors", source, "--out", goal]]
    if name != "m.safetensors":
        commands.append(["train", source, "--epochs", "1", "--save", goal])
    commands += [["convert", source, goal], ["reshuffle", source, goal]]
    for command in commands:
        assert cli.main(command) == 2, command
        assert contents(folder) == before, command
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "--overwrite" in told


def test_what_is_asked_for_is_overwritten(folder, capsys):
    source, goal = f"{folder}/parts", f"{folder}/t.arrow"
    assert cli.main(["train", source, "--epochs", "1", "--save", goal, "--overwrite"]) == 0
    assert load(goal).width == 3
    for command in (["convert", source, goal], ["reshuffle", source, goal]):
        shutil.copy(folder / "notes.txt", goal)
        assert cli.main([*command, "--overwrite"]) == 0
        assert len(cp.open(goal)) == 180
    array = f"{folder}/x.npy"
    assert cli.main(["predict", f"{folder}/m.safetensors", source, "--out", array, "--overwrite"]) == 0
    assert np.load(array).shape == (180,)
    capsys.readouterr()


def test_files_of_the_same_kind_are_replaced_without_asking(folder, capsys):
    model, rows, predicted = (f"{folder}/{name}" for name in ("m.safetensors", "new.arrow", "p.arrow"))
    for _ in range(2):
        assert cli.main(["train", f"{folder}/t.arrow", "--epochs", "2", "--save", model]) == 0
        assert cli.main(["train", f"{folder}/t.arrow", "--warm-start", model, "--epochs", "1", "--save", model]) == 0
        assert len(load(model).history) == 3
        assert cli.main(["convert", f"{folder}/t.parquet", rows]) == 0
        assert cli.main(["reshuffle", f"{folder}/t.parquet", rows]) == 0
        assert cli.main(["predict", model, rows, "--out", predicted]) == 0
        higgs_like(rows, 100, features=3)
    assert cli.main(["convert", f"{folder}/t.arrow", predicted]) == 2  # predictions are no table
    assert cli.main(["predict", model, f"{folder}/t.arrow", "--out", rows]) == 2  # nor the other way round
    capsys.readouterr()


def test_functions_refuse_as_commands_do(folder):
    before = contents(folder)
    source, model = folder / "ours.arrow", load(folder / "m.safetensors")
    opened = cp.open(source)
    halves = Subset(opened, [[0, 50], [100, 200]])
    for table in (
        str(source),
        source,
        opened,
        [source],
        halves,
        testing.Counting(halves),
        cp.open([source, folder / "parts" / "0.arrow"]),
    ):
        for overwrite in (False, True):
            with pytest.raises(WouldOverwrite):
                cp.train(table, epochs=1, save=source, overwrite=overwrite)
            with pytest.raises(WouldOverwrite):
                cp.train(folder / "t.parquet", test=table, epochs=1, save=source, overwrite=overwrite)
            with pytest.raises(WouldOverwrite):
                cp.convert(table, source, overwrite=overwrite)
            with pytest.raises(WouldOverwrite):
                cp.reshuffle(table, source, overwrite=overwrite)
    for write in (model.save, lambda path: higgs_like(path, 10), lambda path: higgs_like(folder / "h", 10, test=path)):
        with pytest.raises(WouldOverwrite, match="overwrite=True"):
            write(folder / "t.arrow")
    (folder / "h").unlink()
    with pytest.raises(WouldOverwrite):
        Writer(source, pa.schema([]), inputs=[folder / "parts", source], overwrite=True).__enter__()
    assert contents(folder) == before
    model.save(folder / "t.arrow", overwrite=True)
    assert load(folder / "t.arrow").width == model.width


def test_the_labels_of_a_conversion_are_inputs(folder):
    before = contents(folder)
    shutil.move(folder / "y.npy", folder / "labels.npy")
    (folder / "out.arrow").symlink_to(folder / "labels.npy")
    with pytest.raises(WouldOverwrite):
        cp.convert(folder / "x.npy", folder / "out.arrow", label=str(folder / "labels.npy"), overwrite=True)
    assert (folder / "labels.npy").read_bytes() == before["y.npy"]


def test_folders_of_images_are_inputs(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("cat/1.png", "dog/1.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True)
        image.new("L", (4, 4)).save(tmp_path / "images" / name)
    before = contents(tmp_path)
    os.link(tmp_path / "images/cat/1.png", tmp_path / "linked")
    for source in (tmp_path / "images", cp.open(tmp_path / "images")):
        for goal in (tmp_path / "images/dog/1.png", tmp_path / "linked"):
            with pytest.raises(WouldOverwrite):
                cp.convert(source, goal, overwrite=True)
    assert contents(tmp_path) == before | {"linked": before["images/cat/1.png"]}


def test_a_model_may_lie_in_the_folder_of_its_table(folder):
    for _ in range(2):
        cp.train(folder / "parts", epochs=1, save=folder / "parts" / "m.safetensors")
    assert len(cp.open(folder / "parts")) == 180


def test_what_a_link_leads_to_is_written(folder):
    (folder / "link").symlink_to("deep.safetensors")
    cp.train(folder / "t.arrow", epochs=1, save=folder / "link")
    assert (folder / "link").is_symlink()
    assert load(folder / "deep.safetensors").width == 3


def test_an_index_takes_the_place_of_no_other_file(tmp_path, folder, capsys):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    index = folder / "t.svm.corgipile-index.arrow"
    index.unlink()
    index.symlink_to(precious)
    assert len(cp.open(folder / "t.svm")) == 200
    assert precious.read_text() == "mine"
    (tmp_path / "r.tfrecord").write_bytes(frame(b"abc"))
    (tmp_path / "r.tfrecord.idx").write_text("my notes\n")
    assert cli.main(["index", str(tmp_path / "r.tfrecord")]) == 2
    assert (tmp_path / "r.tfrecord.idx").read_text() == "my notes\n"
    capsys.readouterr()


def test_a_file_that_appears_meanwhile_stays(tmp_path):
    goal = tmp_path / "a"
    with (  # noqa: PT012 - the point
        pytest.raises(WouldOverwrite),
        replacing(goal, Kind("list", lambda _: False)) as temporary,
    ):
        temporary.write_text("ours")
        goal.write_text("theirs")
    assert contents(tmp_path) == {"a": b"theirs"}


def test_an_empty_file_holds_nothing_that_would_be_lost(tmp_path):
    (tmp_path / "a.safetensors").touch()
    cp.train(clustered(100, classes=2), epochs=1, save=tmp_path / "a.safetensors")
    assert load(tmp_path / "a.safetensors").width == 8


@pytest.mark.parametrize("name", ["no/a", "", "/dev/null", "/dev/full", "loop", "x" * 300])
def test_places_where_no_file_can_be_written(tmp_path, name):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(WriteFailed, match="cannot write") as failed, replacing(tmp_path / name, ANY) as temporary:
        temporary.write_text("x")
    assert failed.value.errno
    assert str(failed.value).startswith("cannot write")
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_that_cannot_be_written_is_told_before_the_work(folder, monkeypatch, read_only):
    flags = os.statvfs(folder).f_flag
    told = SimpleNamespace(f_flag=flags | os.ST_RDONLY if read_only else flags & ~os.ST_RDONLY)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # as root, to whom all folders are open
    monkeypatch.setattr(os, "supports_effective_ids", {os.access})
    monkeypatch.setattr(os, "statvfs", lambda _: told)
    why, seen = "Read-only file system" if read_only else "Permission denied", []
    with pytest.raises(WriteFailed, match=f"cannot write .*new: {why}"):
        cp.train(folder / "t.arrow", epochs=1, save=folder / "new", callback=seen.append)
    with pytest.raises(WriteFailed, match=f"cannot write .*new.arrow: {why}"):
        cp.convert(folder / "t.arrow", folder / "new.arrow")
    assert not seen


def test_a_long_name_is_written(tmp_path):
    with replacing(tmp_path / ("ü" * 125), ANY) as temporary:
        temporary.write_text("x")
    assert contents(tmp_path) == {"ü" * 125: b"x"}


def test_json_history_says_where(folder, capsys):
    goal = f"{folder}/new.safetensors"
    assert cli.main(["train", f"{folder}/t.arrow", "--epochs", "1", "--save", goal, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == goal
    assert check_target(goal, ANY).name == "new.safetensors"


def test_leftovers_of_dead_runs_go_and_others_stay(tmp_path):
    dead = tmp_path / scratch.name_for("a.arrow", "part")
    dead.write_text("half")
    room = tmp_path / scratch.name_for("a.arrow", "room")
    room.mkdir()
    (room / "pile-0").write_text("rows")
    others = [".a.arrow.0123456789ab.part", "a.part", ".corgipile", "corgipile-0123456789ab.part"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / scratch.name_for("link", "part")).symlink_to(tmp_path / "a.part")
    with scratch.temporary(tmp_path / "b.arrow") as alive, scratch.folder(tmp_path, "c") as kept:
        (kept / "x").write_text("in use")
        with replacing(tmp_path / "d", ANY) as temporary:
            temporary.write_text("d")
        assert alive.exists()
        assert (kept / "x").exists()
    left = sorted(path.name for path in tmp_path.iterdir() if not path.is_symlink())
    assert left == sorted([*others, "d"])
    assert (tmp_path / "a.part").read_text() == "mine"
