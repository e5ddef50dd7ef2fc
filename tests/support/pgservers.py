"""Starts PostgreSQL servers with the extension, without writing to their installations.

Tests run on the newest server of the wheel, or on that of PG_CONFIG. Tests marked ``every_server`` run on every
available server, of the wheel and of the system. Tests marked ``every_build`` compare bits, which depend on the
compiler, not on the server: they run on the two newest servers.

With CORGIPILE_VALGRIND=1 (`make memcheck`) servers run under valgrind, and its findings in the extension fail tests.
"""

# ruff: noqa: S608  # tests write SQL

import functools
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from patience import PATIENCE, wait_for

from corgipile import postgres
from corgipile.errors import CorgiPileError

SETTINGS = {"fsync": "off", "shared_buffers": "16MB", "jit": "off", "autovacuum": "off"}
# Builds differ to save time: the first server has code for every vector width, the second a release's optimisation;
# all but the first run the assertions of server and kernel.
ASSERTING = "-DCP_NO_CLONES -DUSE_ASSERT_CHECKING"
BUILDS = ("-O1", ASSERTING, f"-O1 {ASSERTING}")


class SqlError(Exception):
    """The error output of the server or psql."""


class Server(postgres.Server):
    """A server in its own folder, reached through psql."""

    def command(self, user="postgres"):
        """Return the command of a psql that reads SQL from its input and writes rows as JSON."""
        return self.psql("-XAtq", "-v", "ON_ERROR_STOP=1", user=user)

    def said(self, sql, user="postgres", database="postgres"):
        """Run SQL and return what psql printed, and the messages; random() is the same in each run."""
        command, sql = [*self.command(user)[:-1], database], f"SET seed = 0.5;\n{sql}"
        done = subprocess.run(
            command, input=sql, capture_output=True, text=True, check=False, timeout=PATIENCE, cwd="/"
        )
        if done.returncode or re.search("WARNING:  (?!the model is no better|learning rate )", done.stderr):
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

    @property
    def scripts(self):
        """Return the folder of the server's extension scripts."""
        return next((self.home / "server").rglob("corgipile.control")).parent

    def wait_for_lock(self):
        """Wait until a session waits for a lock."""
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_for(lambda: self.value(waiting), "a wait for a lock")

    def dump(self):
        """Return the script that pg_dump writes of the database."""
        command = [self.bin / "pg_dump", "-h", self.where().host, "-U", "postgres", "postgres"]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout

    def log(self):
        """Return the server's log."""
        return (self.home / "log").read_text()


def literal(value):
    """Write a Python value in SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, list):
        return "ARRAY[" + ", ".join(map(literal, value)) + "]"
    return str(value)


@functools.cache  # each call takes a dozen processes
def installations():
    """Return the installation of PG_CONFIG, or all, the newest first; and why others are missing."""
    if config := os.environ.get("PG_CONFIG"):
        return [postgres.installed(config)], ""
    found, missing = [], []
    for find in (
        *(lambda version=version: postgres.embedded(version) for version in postgres.EMBEDDED),
        postgres.installed,
    ):
        try:
            found.append(find())
        except CorgiPileError as error:
            missing.append(str(error))
    return found, "; ".join(missing)


def watch(running):
    """Run the server under valgrind; return a function that returns its findings in the extension."""
    program, logs = (running.bin / "postgres").resolve(), running.home / "memcheck"
    real = program.rename(program.with_name("postgres.real"))
    logs.mkdir()
    logs.chmod(0o777)
    command = f"valgrind --quiet --trace-children=yes --leak-check=no --num-callers=30 --log-file={logs}/%p {real}"
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)

    def faults():
        found = [fault for log in logs.iterdir() for fault in re.split(r"==\d+== \n", log.read_text())]
        return [fault for fault in found if "corgi" in fault or "cp_" in fault]

    return faults


def pytest_generate_tests(metafunc):
    """Run tests on the first server or on several."""
    if "server" not in metafunc.fixturenames:
        return
    found, missing = installations()
    marked = metafunc.definition.get_closest_marker
    most = len(found) if marked("every_server") else 2 if marked("every_build") else 1
    runs = [pytest.param((at, one), id=f"pg{one.version}") for at, one in enumerate(found[:most])]
    nowhere = [pytest.param(None, marks=pytest.mark.skip(f"no PostgreSQL server here: {missing}"), id="no-server")]
    metafunc.parametrize("server", runs or nowhere, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(request):
    """Start a server for all tests."""
    at, source = request.param
    with tempfile.TemporaryDirectory(prefix="cp-pg-") as home:
        Path(home).chmod(0o755)
        running = Server(home)
        running.prepare(source, f"-Werror {BUILDS[min(at, len(BUILDS) - 1)]}")
        running.start(settings=SETTINGS)
        faults = list
        if os.environ.get("CORGIPILE_VALGRIND"):
            running.stop()
            faults = watch(running)
            running.start(settings=SETTINGS)
        try:
            yield running
        finally:
            running.stop("immediate")
        assert faults() == []
