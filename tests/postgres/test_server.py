"""The server itself, and tables copied into it."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import postgres
from corgipile.errors import CorgiPileError, ServerError


@contextmanager
def another(server, name):
    """Make a folder for another server that has the programs of this one."""
    with tempfile.TemporaryDirectory(prefix="cp-pg-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / name
        home.mkdir()
        (home / "bin").symlink_to(server.bin.resolve())
        other = type(server)(home)
        try:
            yield other
        finally:
            other.stop("immediate")


def test_the_socket_is_in_a_folder_of_its_own(server):
    assert server.where().host == str(server.sockets)
    assert server.sockets.stat().st_mode & 0o777 == 0o700
    assert not list(server.data.glob(".s.PGSQL*"))


@pytest.mark.every_server
def test_a_path_too_long_for_a_socket_and_with_odd_letters(server):
    with another(server, "it's, " + 10 * "so to say, " + "a name") as other:
        other.start()
        assert other.value("SELECT 1") == 1
        socket = Path(other.where().host)
        assert socket not in (other.data, other.sockets)
        assert other.stop()
        assert not socket.exists()
        assert not other.stop()


def test_a_server_that_does_not_start_says_why_and_leaves_no_socket_folder(server):
    before = set(Path(tempfile.gettempdir()).glob("corgipile-pg-*"))
    with another(server, "long" * 30) as other, pytest.raises(ServerError, match="shared_buffers"):
        other.start(settings={"shared_buffers": "1"})
    assert set(Path(tempfile.gettempdir()).glob("corgipile-pg-*")) <= before


def test_data_of_another_version(server):
    for version in postgres.EMBEDDED:
        try:
            source = postgres.embedded(version)
        except CorgiPileError:
            continue
        if version != server.version:
            with pytest.raises(ServerError, match=f"must be version {server.version} for the data .*, got {version}"):
                server.prepare(source)


def test_query_tells_what_the_server_says(server):
    assert server.query("SELECT 1, NULL; SELECT 'a'") == "1|\na"
    with pytest.raises(ServerError, match='relation "nowhere" does not exist'):
        server.query("SELECT * FROM nowhere")


def test_tables_are_copied(server):
    psycopg = pytest.importorskip("psycopg")
    lists = {"r": pa.float32(), "d": pa.float64(), "i": pa.int32()}
    columns = {name: pa.array([[1, 2], [3, 4]], pa.list_(kind, 2)) for name, kind in lists.items()}
    columns |= {'odd "name"': pa.array([5, 6], pa.int64()), "s": pa.array([7, 8], pa.int16())}
    with psycopg.connect(server.url, autocommit=True) as connection:
        assert postgres.copy_table(connection, "public.copied", cp.open(pa.table(columns))) == 2
    assert server.rows("SELECT * FROM copied") == pa.table(columns).to_pylist()
    kinds = "SELECT string_agg(format_type(atttypid, -1), ' ') k FROM pg_attribute WHERE attrelid = 'copied'::regclass"
    assert server.value(kinds + " AND attnum > 0") == "real[] double precision[] integer[] bigint smallint"
