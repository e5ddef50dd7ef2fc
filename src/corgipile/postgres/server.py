"""Runs a PostgreSQL server in a folder of its own, with the extension in it."""

import contextlib
import hashlib
import os
import pwd
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from corgipile.errors import ServerError
from corgipile.postgres.installation import Installation, install, sources
from corgipile.postgres.processes import alive, capture, taken

_NEEDLESS = shutil.ignore_patterns("pgxs", "bitcode", "llvmjit*", "*.a")
_LONGEST = 100  # bytes of the path of a socket


@dataclass(frozen=True)
class Address:
    """Where a running server listens: ``host`` is the folder of its socket, ``tcp`` whether on localhost as well."""

    host: str
    port: int
    tcp: bool


class Server:
    """A PostgreSQL server in a folder of its own.

    Servers refuse to be run by root: then an unprivileged user does, the owner of ``data`` or else ``postgres`` or
    ``nobody``. Whoever may enter ``socket`` (its owner, and root) connects through it without a password.

    ::

        home/server     the server's files, copied, and the extension; made again when either is another
        home/bin        link to the server's programs
        home/data       tables
        home/socket     the socket, which only the server's user and root may reach
        home/password   of postgres, for connections to a port
        home/log        what the server says

    Args:
        home: The folder; made by ``prepare``.

    Example:
        >>> Server("/nowhere/server").version is None
        True
    """

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home).expanduser().absolute()
        self.data, self.bin = self.home / "data", self.home / "bin"
        self.sockets = self.home / "socket"

    @property
    def version(self) -> int | None:
        """Return the major version of the data; None if there are none."""
        path = self.data / "PG_VERSION"
        try:
            return int(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            raise ServerError(f"{self.data} belongs to another user, or to root") from error

    @property
    def address(self) -> Address | None:
        """Return where the server listens; None if it does not run."""
        lines = (_text(self.data / "postmaster.pid") or "").splitlines()
        if len(lines) < 6 or not alive(int(lines[0])):
            return None
        return Address(lines[4], int(lines[3]), tcp=bool(lines[5]))

    def where(self) -> Address:
        """Return where the server listens.

        Raises:
            ServerError: It does not.
        """
        if self.version is None:
            raise ServerError(f"{self.home} holds no server; `corgipile pg start {self.home}` makes one")
        if (address := self.address) is None:
            raise ServerError(f"the server in {self.home} is not up; `corgipile pg start {self.home}` starts it")
        return address

    @property
    def url(self) -> str:
        """Return the connection string of the running server."""
        at = self.where()
        if at.tcp:
            password = (self.home / "password").read_text().strip()
            return f"postgresql://postgres:{password}@localhost:{at.port}/postgres"
        return f"postgresql://postgres@/postgres?host={quote(at.host, safe='/')}&port={at.port}"

    def prepare(self, source: Installation, flags: str = "") -> None:
        """Copy the server's files and build the extension beside them, unless this was done before.

        The copy is what lets the extension be installed without writing to where the server came from, and the data
        be used when that is gone.

        Args:
            source: Server to copy.
            flags: Options for the compiler.
        """
        if self.version not in {None, source.version}:
            raise ServerError(f"{self.data} is of PostgreSQL {self.version}, not {source.version}")
        if self.version is None and not (self.home / "server").exists() and _any(self.home):
            raise ServerError(f"{self.home} holds other files and no server; name a new or empty folder")
        self.home.mkdir(parents=True, exist_ok=True)
        self._enterable()
        server, fresh = self.home / "server", self.home / "server.new"
        stamp = _stamp(source, flags)
        if _text(server / "stamp") == stamp:
            return
        shutil.rmtree(fresh, ignore_errors=True)
        for folder in filter(None, (source.bindir, source.pkglibdir, source.sharedir, source.libraries)):
            # Programs look for the rest where it lies relative to them, so paths stay as they are, below a new root.
            inside = fresh / folder.relative_to("/")
            shutil.copytree(folder, inside, ignore=_NEEDLESS, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        install(source, fresh, flags)
        (fresh / "stamp").write_text(stamp)
        shutil.rmtree(server, ignore_errors=True)
        fresh.rename(server)
        self.bin.unlink(missing_ok=True)
        self.bin.symlink_to(Path("server") / source.bindir.relative_to("/"))

    def start(self, port: int | None = None, settings: Mapping[str, object] | None = None) -> None:
        """Start the server, making its data first if there are none, and create the extension.

        Args:
            port: Port of localhost to listen on besides the socket; connections need the password.
            settings: Configuration parameters.

        Raises:
            ServerError: The port is taken, or the server does not start.
        """
        if port is not None and taken(port):
            raise ServerError(f"port {port} is taken; give another")
        if self.version is None:
            self._make_data()
        listen = {"listen_addresses": "localhost", "port": port} if port else {"listen_addresses": ""}
        sockets = self._socket_folder()
        given = {"unix_socket_directories": f'"{sockets}"', **listen, **(settings or {})}
        options = shlex.join(word for name, value in given.items() for word in ("-c", f"{name}={value}"))
        log = self.home / "log"
        self._own(log).touch()
        try:
            self._run("pg_ctl", "start", "-w", "-D", str(self.data), "-l", str(log), "-o", options)
        except ServerError:
            self._forget(sockets)
            raise
        self.query("CREATE EXTENSION IF NOT EXISTS corgipile; ALTER EXTENSION corgipile UPDATE")

    def stop(self, mode: str = "fast") -> bool:
        """Stop the server; say whether it was up.

        Args:
            mode: "smart" waits for clients, "fast" does not, "immediate" leaves recovery to the next start.
        """
        address = self.address
        if address is None:
            return False
        self._run("pg_ctl", "stop", "-w", "-D", str(self.data), "-m", mode)
        self._forget(Path(address.host))
        return True

    def psql(self, *words: str, user: str = "postgres") -> list[str]:
        """Return the command that runs psql on the running server."""
        at = self.where()
        return [str(self.bin / "psql"), "-h", at.host, "-p", str(at.port), "-U", user, *words, "postgres"]

    def query(self, sql: str) -> str:
        """Run SQL and return what psql prints: columns with | between, a line a row.

        Raises:
            ServerError: The server refuses it.
        """
        done = capture(self.psql("-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql))
        if done.returncode:
            raise ServerError(done.stderr.strip())
        return done.stdout.strip()

    def _make_data(self) -> None:
        password = self._own(self.home / "password")
        password.write_text(secrets.token_urlsafe(16) + "\n")
        self._own(self.data, folder=True)
        methods = ["-A", "trust", "--auth-host=scram-sha-256", f"--pwfile={password}"]
        self._run("initdb", "-D", str(self.data), "-U", "postgres", *methods, "-N", "-E", "UTF8", "--no-locale")

    def _own(self, path: Path, *, folder: bool = False) -> Path:
        """Make a file or folder that only the server's user may open."""
        if folder:
            path.mkdir(mode=0o700, exist_ok=True)
        else:
            path.touch(mode=0o600)
        if user := self._user():
            os.chown(path, user.pw_uid, user.pw_gid)
        return path

    def _socket_folder(self) -> Path:
        """Return a folder that only the server's user enters, elsewhere where its name is too long for a socket."""
        if len(os.fsencode(self.sockets)) < _LONGEST - len("/.s.PGSQL.12345.lock"):
            return self._own(self.sockets, folder=True)
        return self._own(Path(tempfile.mkdtemp(prefix="corgipile-pg-")), folder=True)

    def _forget(self, sockets: Path) -> None:
        if sockets not in {self.sockets, self.data}:
            shutil.rmtree(sockets, ignore_errors=True)

    def _user(self) -> pwd.struct_passwd | None:
        """Return the user that runs the server in the place of root."""
        if os.geteuid() != 0:
            return None
        with contextlib.suppress(FileNotFoundError, KeyError):
            if owner := self.data.stat().st_uid:
                return pwd.getpwuid(owner)
        names = {entry.pw_name: entry for entry in pwd.getpwall()}
        return names.get("postgres") or names["nobody"]

    def _enterable(self) -> None:
        if (user := self._user()) is None:
            return
        if capture(["/bin/sh", "-c", 'cd "$0"', str(self.home)], user).returncode:
            elsewhere = "a folder that all may enter, such as one in /var/lib, is needed"
            raise ServerError(
                f"user {user.pw_name}, who runs the server for root, cannot enter {self.home}; {elsewhere}"
            )

    def _run(self, program: str, *words: str) -> None:
        done = capture([str(self.bin / program), *words], self._user())
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip()
            log = (_text(self.home / "log") or "").splitlines()[-8:] if program == "pg_ctl" else []
            raise ServerError("\n".join([f"{program}: {said}", *log]))


def default_home() -> Path:
    """Return the folder of the server of a user who names none.

    Example:
        >>> default_home().parts[-2:]
        ('corgipile', 'pg')
    """
    if os.geteuid() == 0:
        return Path("/var/lib/corgipile/pg")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "corgipile" / "pg"


def _stamp(source: Installation, flags: str) -> str:
    """Return what changes when the server, the compiler's options or the sources do."""
    digest = hashlib.sha256(f"{source} {flags} {os.environ.get('EXTRA_CFLAGS')}".encode())
    for pattern in (
        "kernel/**/*.h",
        "postgres/src/*.[ch]",
        "postgres/sql/*.sql",
        "postgres/*.control",
        "postgres/Makefile",
    ):
        for path in sorted(sources().glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _any(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
