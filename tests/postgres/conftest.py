"""Fixtures of the extension's tests; `pgservers` starts the servers."""

# ruff: noqa: S608  # tests write SQL

import contextlib
import subprocess

import pytest
from pgroles import ROLES
from pgservers import SqlError, installations, literal
from taggedrows import learn, tagged

__all__ = ["learn", "tagged"]  # of several labels


@pytest.fixture(scope="session")
def pg_regress():
    """Return the first working pg_regress; any works with every server."""
    for source in installations()[0]:
        program = source.pkglibdir / "pgxs/src/test/regress/pg_regress"
        if program.exists() and not subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
            return program
    return pytest.skip("no server here has a pg_regress that runs")


@pytest.fixture
def fails(server):
    """Return a function that runs failing SQL and returns its message."""

    def run(sql, user="postgres"):
        with pytest.raises(SqlError) as caught:
            server.text(sql, user)
        return str(caught.value)

    return run


@pytest.fixture
def train(server):
    """Return a function that trains and returns a row per epoch."""

    def run(source, *, user="postgres", **options):
        given = {"model": "logistic", "features": "x", "label": "label", "epochs": 2, **options}
        arguments = ", ".join(f'"{name}" => {literal(value)}' for name, value in given.items())
        return server.rows(f"SELECT * FROM corgipile.train({literal(source)}, {arguments})", user)

    return run


class Session:
    """A psql that stays open; its output, errors included, is read statement by statement."""

    def __init__(self, command):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.psql = subprocess.Popen(command, **pipes, text=True, cwd="/", bufsize=1)
        self.tell("\\set ON_ERROR_STOP 0\nSET client_min_messages = warning")

    def send(self, sql):
        """Run SQL without waiting for it."""
        self.psql.stdin.write(f"{sql};\n\\echo .\n")

    def hear(self):
        """Return the output of the sent SQL."""
        return "".join(iter(self.psql.stdout.readline, ".\n")).strip()

    def tell(self, sql):
        """Run SQL and return its output."""
        self.send(sql)
        return self.hear()


@pytest.fixture
def session(server):
    """Return a function that opens a session of a role."""
    with contextlib.ExitStack() as opened:

        def start(user="postgres"):
            new = Session(server.command(user))
            opened.enter_context(new.psql)
            opened.callback(new.psql.stdin.close)
            return new

        yield start


@pytest.fixture(scope="session")
def roles(server):
    """Make six roles: the owner of a model, its member, three with one right each, one without."""
    server.sql("CREATE ROLE m_owner LOGIN; CREATE ROLE m_member LOGIN IN ROLE m_owner;"
               + "".join(f"CREATE ROLE m_{name} LOGIN;" for name in ROLES[2:]))  # fmt: skip
    server.sql("""
        CREATE TABLE seen AS SELECT ARRAY[i % 7, i / 50 - 1]::real[] AS x, i / 50 AS label, i AS secret
            FROM generate_series(0, 99) i;
        GRANT SELECT (x, label) ON seen TO m_owner, m_member, m_user, m_reader, m_replacer, m_stranger;
        CREATE TABLE unseen AS SELECT * FROM seen;
    """)
    yield
    server.sql("DELETE FROM corgipile.models WHERE owner <> 'postgres'")


@pytest.fixture
def model(server, train, roles):
    """Retrain the model of m_owner, and grant its rights."""
    server.sql("DELETE FROM corgipile.models WHERE name IN ('m', 'mine')")
    train("seen", name="m", user="m_owner")
    for role, right in (("user", "use"), ("reader", "read"), ("replacer", "replace")):
        server.text(f"SELECT corgipile.grant_model('m', 'm_{role}', '{right}')", "m_owner")
