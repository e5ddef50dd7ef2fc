"""Files that name code, hosts or other files cannot reach them, whatever command reads them."""

import http.server
import pickle
import threading
from types import SimpleNamespace

import hostile_arrays  # noqa: F401 - kinds
import hostile_lakes  # noqa: F401 - kinds
import numpy as np
import pytest
from hostile import KINDS, NUMBER, SECRET, Trap, plain
from hostile_files import postscript

import corgipile as cp
import corgipile.sql.runner
from corgipile import cli, tables
from corgipile.errors import BadArgument, CorgiPileError, CorruptFile, UnknownFormat, UntrustedPath
from corgipile.tables.formats.zarr import table as zarr
from corgipile.tables.reach import trusting, within

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of libraries about such files
COMMANDS = {
    "info": lambda path, out: ["info", path],
    "convert": lambda path, out: ["convert", path, f"{out}/o.arrow"],
    "train": lambda path, out: ["train", path, "--epochs", "1", "--save", f"{out}/m.safetensors"],
    "sql": lambda path, out: ["sql", f"SELECT * FROM '{path}' TRAIN BY logistic WITH max_epoch_num = 1"],  # noqa: S608
}
FIRST = {name.partition("-")[0]: name for name in reversed(KINDS)}  # variants that differ in one word
CASES = [
    (name, command)
    for name in KINDS
    for command in (["open", *COMMANDS] if name in FIRST.values() else ["open", "convert"])
]


@pytest.fixture(scope="module")
def asked():
    """Run a server; return its port and the list of its requests."""
    found = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found.append(self.path)
            self.send_error(404)

        do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield SimpleNamespace(port=server.server_port, requests=found)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def made(asked, tmp_path_factory):
    """Return a cached maker of a hostile file."""
    root = tmp_path_factory.mktemp("hostile")
    trap, paths = Trap(root, asked.port), {}

    def make(name):
        if name not in paths:
            if not KINDS[name].is_here:
                pytest.skip(f"{name} needs {KINDS[name].needs}")
            folder = root / "files" / name
            folder.mkdir(parents=True)
            paths[name] = KINDS[name].make(trap, folder)
        return paths[name]

    return SimpleNamespace(trap=trap, make=make)


def reads(command, path, out, capsys):
    """Run a command on a file; return its output, the files it wrote, and whether it failed."""
    if command == "open":
        try:
            rows = tables.open(path)
            return repr([rows.schema, rows.read(0, len(rows)).to_pylist()]).encode(), False
        except CorgiPileError as error:
            return str(error).encode(), True
    code = cli.main(COMMANDS[command](str(path), out))
    assert code in (0, 2)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    written = b"".join(file.read_bytes() for file in sorted(out.iterdir()))
    return (said.out + said.err).encode() + written, code == 2


def test_there_are_kinds_enough():
    assert len(KINDS) >= 60


@pytest.mark.parametrize(("name", "command"), CASES)
def test_hostile(name, command, asked, made, tmp_path, monkeypatch, capsys):
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(variable, "key")
    path = made.make(name)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)  # where executed code would write
    answer, failed = reads(command, path, tmp_path / "work", capsys)
    assert not made.trap.ran.exists()
    assert asked.requests == []
    assert SECRET not in answer.replace(str(made.trap.folder).encode(), b"")
    assert str(NUMBER).encode() not in answer
    assert failed or not KINDS[name].refused
    assert {file.name for file in work.iterdir()} <= {"o.arrow", "m.safetensors"}


def test_harmless_parts_are_read(made):
    for name in ("iceberg_property-code", "iceberg_property-host", "huggingface_info", "delta_options"):
        if KINDS[name].is_here:
            rows = tables.open(made.make(name)).read(0, 8)
            assert rows["label"] == plain()["label"].chunk(0)


@pytest.mark.parametrize(
    "name",
    ["huggingface_file-relative", "delta_file-absolute", "delta_vector-url", "delta_sidecar-url", "lance_base-clone"]
    + [f"hdf5_{one}" for one in ("external_storage-absolute", "virtual-relative", "virtual_of_a_link-soft")]
    + ["iceberg_elsewhere-data", "iceberg_manifest_list-url", "mds_shard-absolute", "part_places-absolute"],
)
def test_trusted_paths_are_followed(name, made, tmp_path, capsys):
    path = made.make(name)
    with pytest.raises((UntrustedPath, TypeError)):  # the error for an HDF5 link suggests opening its target
        tables.open(path)
    rows = tables.open(path, trust="paths")
    assert len(rows.read(0, len(rows))) == len(rows) > 0
    assert cli.main(["convert", str(path), f"{tmp_path}/o.arrow", "--open", "trust=paths"]) == 0
    assert len(tables.open(tmp_path / "o.arrow")) == len(rows)
    capsys.readouterr()
    statement = f"SELECT * FROM '{path}' TRAIN BY squared WITH max_epoch_num = 1, label = '{rows.schema.names[-1]}'"  # noqa: S608
    cli.main(["sql", statement, "--trust", "paths"])
    assert "trust" not in capsys.readouterr().err


def test_trust_goes_along_to_other_processes(made):
    pytest.importorskip("h5py")
    rows = tables.open(made.make("hdf5_virtual-relative"), trust="paths")
    assert pickle.loads(pickle.dumps(rows)).read(0, 8) == rows.read(0, 8)  # noqa: S301


def test_what_trust_may_be(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    assert len(tables.open(tmp_path / "a.npy", trust="paths")) == 3
    with pytest.raises(BadArgument, match="trust must be 'paths' or None, got True"):
        tables.open(tmp_path / "a.npy", trust=True)
    with pytest.raises(BadArgument, match="trust must be None for PostgreSQL"):
        cp.sql.runner.open_connection(dsn="postgresql://localhost/none", trust="paths")


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("a", True), ("b/a", True), ("b/../a", True), ("./a", True), ("file", True), ("link/a", False), ("..", False),
        ("../table/a", True), ("../a", False), ("b/../../a", False), ("/etc/hostname", False), ("", False),
        ("a\0", False), (None, False), (3, False), ("loop/a", False), ("b/..", False), ("..a", True),
    ],
)  # fmt: skip
def test_within(name, inside, tmp_path):
    folder = tmp_path / "table"
    (folder / "b").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (folder / "link").symlink_to(tmp_path / "other")
    (folder / "file").symlink_to(tmp_path / "other" / "file")  # the user's link, as in a cache of the Hub
    (folder / "loop").symlink_to("loop")
    (tmp_path / "again").symlink_to(folder)
    for one in (folder, tmp_path / "again"):
        if inside:
            assert within(one, name, "index") == one / name
        else:
            with pytest.raises(UntrustedPath, match="must lie in the folder of the table"):
                within(one, name, "index")
    assert within(folder, str(tmp_path / "again" / "a"), "index").name == "a"
    with trusting("paths"):
        assert within(folder, "../a", "index") == folder / "../a"


@pytest.mark.parametrize("way", ["relative", "absolute", "long_tag", "hidden"])
def test_time_zones_are_checked_before_the_library_opens_them(way, made):
    with pytest.raises(CorruptFile, match=r"must be a name|its footer cannot be read"):
        tables.open(made.make(f"orc_time_zone-{way}"))


def test_programs_are_no_images(made):
    pytest.importorskip("PIL")
    with pytest.raises(CorruptFile, match="are not a complete image"):
        tables.decode_image(postscript(made.trap.ran))
    assert not made.trap.ran.exists()


def test_pickles_of_an_older_zarr():
    pytest.importorskip("zarr")
    metadata = SimpleNamespace(filters=[SimpleNamespace(codec_id="pickle")], compressor=None)
    array = SimpleNamespace(shape=(4,), chunks=(4,), dtype=np.dtype("O"), metadata=metadata, name="/x")
    with pytest.raises(UnknownFormat, match="stored as pickle"):
        zarr._ZarrArray(array, "a.zarr")
