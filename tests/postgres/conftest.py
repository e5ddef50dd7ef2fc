"""Starts a server of its own with the extension in it; nothing is written where the system's server is installed."""

# ruff: noqa: S608  # tests write SQL

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "postgres"
PROGRAMS = ("postgres", "initdb", "pg_ctl", "psql", "pg_dump")


class SqlError(Exception):
    """What the server or psql said on its error output."""


class Server:
    """A server in a folder of its own, reached through psql."""

    def __init__(self, config, home):
        self.home, self.user = home, unprivileged()
        self.paths = {key: Path(ask(config, f"--{key}")) for key in ("bindir", "pkglibdir", "sharedir", "libdir")}
        self.version = ask(config, "--version")
        self.root = home / "root"
        self.data, self.bin = home / "data", self.root / self.paths["bindir"].relative_to("/")
        build(config, home / "build", self.root)
        self._mirror()
        self.data.mkdir()
        if self.user is not None:
            os.chown(self.data, self.user.pw_uid, self.user.pw_gid)

    def _mirror(self):
        """Copy the programs and link the rest: a server looks for its libraries from where its program lies."""
        folders = [self.paths["sharedir"], self.paths["pkglibdir"]]
        if self.paths["libdir"] in self.paths["pkglibdir"].parents:
            folders = [self.paths["sharedir"], self.paths["libdir"]]
        for folder in folders:
            inside = self.root / folder.relative_to("/")
            shutil.copytree(folder, inside, copy_function=link, dirs_exist_ok=True)
        self.bin.mkdir(parents=True, exist_ok=True)
        for program in PROGRAMS:
            shutil.copy2(self.paths["bindir"] / program, self.bin)

    def run(self, program, *arguments):
        """Run one of the server's programs as the server's user."""
        who = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        log = self.home / f"{program}.log"
        with log.open("ab") as out:
            command = [str(self.bin / program), *arguments]
            done = subprocess.run(command, stdout=out, stderr=out, check=False, cwd="/", timeout=120, **who)
        assert done.returncode == 0, f"{program}: {log.read_text()[-2000:]}"

    def start(self):
        """Make the data folder and start."""
        self.run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--no-locale")
        options = (
            f"-k {self.data} -c listen_addresses= -c fsync=off -c shared_buffers=16MB -c jit=off -c autovacuum=off"
        )
        self.run("pg_ctl", "-w", "-D", str(self.data), "-l", str(self.data / "log"), "-o", options, "start")
        self.sql("CREATE EXTENSION corgipile")

    def stop(self):
        """Stop without waiting for clients."""
        self.run("pg_ctl", "-w", "-D", str(self.data), "-m", "immediate", "stop")

    def command(self, user="postgres"):
        """Return the command of a psql that reads SQL from its input and writes rows as JSON."""
        arguments = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-h", str(self.data), "-U", user, "postgres"]
        return [str(self.bin / "psql"), *arguments]

    def said(self, sql, user="postgres", database="postgres"):
        """Run SQL and return what psql printed, and the messages."""
        command = [*self.command(user)[:-1], database]
        done = subprocess.run(command, input=sql, capture_output=True, text=True, check=False, timeout=300, cwd="/")
        if done.returncode or "WARNING" in done.stderr:
            raise SqlError(done.stderr)
        return done.stdout, done.stderr

    def text(self, sql, user="postgres", database="postgres"):
        """Run SQL and return what psql printed."""
        return self.said(sql, user, database)[0]

    def sql(self, sql, user="postgres"):
        """Run statements."""
        self.text(sql, user)

    def rows(self, query, user="postgres"):
        """Return the rows of one query as dictionaries."""
        return json.loads(self.text(f"SELECT coalesce(json_agg(q), '[]') FROM ({query}) q", user))

    def value(self, query, user="postgres"):
        """Return the one value of a query."""
        (row,) = self.rows(query, user)
        (value,) = row.values()
        return value

    def log(self):
        """Return the server's log."""
        return (self.data / "log").read_text()


def link(source, target):
    """Link instead of copying; the extension is there already."""
    if not Path(target).exists():
        Path(target).symlink_to(source)


def unprivileged():
    """Return the user that runs the server where tests are run by root, whom servers refuse."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def ask(config, option):
    """Ask pg_config."""
    return subprocess.run([config, option], capture_output=True, text=True, check=True).stdout.strip()


def build(config, folder, root):
    """Compile the extension and install it below `root`."""
    folder.mkdir()
    make = ["make", "-s", "-j2", "-f", str(SOURCES / "Makefile"), f"PG_CONFIG={config}", f"DESTDIR={root}"]
    done = subprocess.run(
        [*make, "EXTRA_CFLAGS=-Werror", "install"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def find_config():
    """Return pg_config of a server that can be built for and started, or say what is missing."""
    config = shutil.which(os.environ.get("PG_CONFIG", "pg_config"))
    if config is None:
        pytest.skip("no pg_config here: install a PostgreSQL server and its headers, or set PG_CONFIG")
    headers = Path(ask(config, "--includedir-server")) / "postgres.h"
    programs = [Path(ask(config, "--bindir")) / program for program in PROGRAMS]
    for needed in (headers, Path(ask(config, "--pgxs")), *programs):
        if not needed.exists():
            pytest.skip(f"{config} belongs to no whole server installation: {needed} is missing")
    if shutil.which("make") is None:
        pytest.skip("no make here")
    return config


@pytest.fixture(scope="session")
def server():
    """Start a server for all tests."""
    config = find_config()
    with tempfile.TemporaryDirectory(prefix="cp-pg-") as home:
        Path(home).chmod(0o755)
        running = Server(config, Path(home))
        running.start()
        try:
            yield running
        finally:
            running.stop()


@pytest.fixture
def fails(server):
    """Return what runs SQL that must fail, and gives its message."""

    def run(sql, user="postgres"):
        with pytest.raises(SqlError) as caught:
            server.text(sql, user)
        return str(caught.value)

    return run


@pytest.fixture
def train(server):
    """Return what trains and gives the rows, one an epoch."""

    def run(source, *, user="postgres", **options):
        given = {"model": "logistic", "features": "x", "label": "label", "epochs": 2, **options}
        arguments = ", ".join(f'"{name}" => {literal(value)}' for name, value in given.items())
        return server.rows(f"SELECT * FROM corgipile.train({literal(source)}, {arguments})", user)

    return run


def literal(value):
    """Write a Python value in SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, list):
        return "ARRAY[" + ", ".join(map(literal, value)) + "]"
    return str(value)
