"""The command pg with a server from PyPI, run by an ordinary user."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ports import free_port

from corgipile import cli, postgres
from corgipile.errors import CorgiPileError

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def ordinary():
    """Return options of subprocess.run for an ordinary user; empty if only root can run this Python."""
    nobody = pwd.getpwnam("nobody")
    who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    try:
        subprocess.run([sys.executable, "-c", "import typer"], check=True, capture_output=True, cwd="/", **who)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return who


@pytest.fixture(scope="module")
def run(ordinary):
    """Return a function that runs a command."""

    def run(*words, text=""):
        command = [sys.executable, "-m", "corgipile.cli", "pg", *map(str, words)]
        quick = {**os.environ, "EXTRA_CFLAGS": "-O0 -DCP_NO_CLONES"}
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, env=quick, cwd="/", **ordinary
        )

    return run


@pytest.fixture(scope="module")
def home(run, ordinary):
    """Start a server."""
    try:
        postgres.embedded()
    except CorgiPileError as error:
        pytest.skip(str(error))
    if shutil.which("make") is None:
        pytest.skip("no make here")
    with tempfile.TemporaryDirectory(prefix="cp pg-") as folder:
        Path(folder).chmod(0o755)
        if ordinary:
            os.chown(folder, ordinary["user"], ordinary["group"])
        done = run("start", Path(folder) / "s")
        assert done.returncode == 0, done.stderr
        yield Path(folder) / "s"
        postgres.Server(Path(folder) / "s").stop("immediate")


def test_training_in_psql(run, home):
    sql = "CREATE TABLE t AS SELECT ARRAY[i % 2 - 0.5]::real[] AS x, i % 2 AS label FROM generate_series(1, 100) i"
    done = run("psql", home, "-c", sql, "-c", "SELECT rows FROM corgipile.train('t', 'svm', 'x', 'label', epochs => 1)")
    assert done.returncode == 0, done.stderr
    assert "100" in done.stdout
    assert "SELECT 100" in done.stdout


def test_psql_reads_what_is_piped_and_tells_failure(run, home):
    assert run("psql", home, text="SELECT 6 * 7\n;").stdout.split()[2] == "42"
    assert run("psql", home, "-c", "SELECT nothing").returncode == 1


def test_starting_twice_and_status_say_the_same(run, home):
    first, second = run("start", home), run("status", home)
    assert first.stdout == second.stdout
    assert first.stdout.startswith("postgresql://postgres@/postgres?host=")
    assert "already" not in first.stderr
    assert "version must be 18" in run("start", home, "--version", 16).stderr
    assert "got 1234; stop the server" in run("start", home, "--port", 1234).stderr


def test_data_stay_and_a_port_takes_the_password(run, home):
    psycopg = pytest.importorskip("psycopg")
    assert run("psql", home, "-c", "CREATE TABLE kept AS SELECT 17 AS number").returncode == 0
    assert run("stop", home).returncode == 0
    for command in ("stop", "status", "psql"):
        done = run(command, home)
        assert (done.returncode, done.stderr.count("is not running")) == (2, 1)
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert f"port {port} is in use" in run("start", home, "--port", port).stderr
    url = run("start", home, "--port", port).stdout.strip()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (17,)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(url, password="wrong")
    assert "PostgreSQL must be version 18" in run("stop", home).stderr + run("start", home, "--version", 16).stderr
    assert run("start", home).returncode == 0


def test_folders_that_are_no_servers(run, home, capsys):
    assert "contains other files but no server" in run("start", home / "data" / "base").stderr
    assert "has no server" in run("status", home / "elsewhere").stderr
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as closed:
            done = cli.main(["pg", "start", f"{closed}/s"])
        assert done == 2
        assert "cannot enter" in capsys.readouterr().err


def test_install_says_what_is_missing(run):
    done = run("install", "--pg-config", "/nowhere/pg_config")
    assert (done.returncode, done.stderr) == (
        2,
        "corgipile: program /nowhere/pg_config not found; give the path of pg_config\n",
    )
