"""Runs a PostgreSQL server with the extension in its own folder."""

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
from corgipile.postgres.processes import alive, capture, port_in_use

_UNNEEDED_FILES = shutil.ignore_patterns("pgxs", "bitcode", "llvmjit*", "*.a")
_MAX_SOCKET_PATH = 100  # bytes


@dataclass(frozen=True)
class Address:
    """The address of a running server: ``host`` is its socket folder; ``tcp``: also on localhost."""

    host: str
    port: int
    tcp: bool


class Server:
    """A PostgreSQL server in its own folder.

    PostgreSQL refuses to run as root; the owner of ``data``, ``postgres`` or ``nobody`` then runs it. Users who may
    enter ``socket`` (its owner and root) connect without a password.

    ::

        home/server     copy of the server's files with the extension; rebuilt when either changes
        home/bin        link to the server's programs
        home/data       tables
        home/socket     the socket, accessible to the server's user and root only
        home/password   of the role postgres, for connections to a port
        home/log        the server's log

    Args:
        home: The folder; ``prepare`` creates it.

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
        """The major version of the data; None without data."""
        path = self.data / "PG_VERSION"
        try:
            return int(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            raise ServerError(f"{self.data} belongs to another user, or to root") from error

    @property
    def address(self) -> Address | None:
        """The address of the server; None if it is not running."""
        lines = (_text(self.data / "postmaster.pid") or "").splitlines()
        if len(lines) < 6 or not alive(int(lines[0])):
            return None
        return Address(lines[4], int(lines[3]), tcp=bool(lines[5]))

    def where(self) -> Address:
        """Return the address of the running server.

        Raises:
            ServerError: The server is not running.
        """
        if self.version is None:
            raise ServerError(f"{self.home} has no server; create it with `corgipile pg start {self.home}`")
        if (address := self.address) is None:
            start = f"start it with `corgipile pg start {self.home}`"
            raise ServerError(f"the server in {self.home} is not running; {start}")
        return address

    @property
    def url(self) -> str:
        """The connection string of the running server."""
        at = self.where()
        if at.tcp:
            password = (self.home / "password").read_text().strip()
            return f"postgresql://postgres:{password}@localhost:{at.port}/postgres"
        return f"postgresql://postgres@/postgres?host={quote(at.host, safe='/')}&port={at.port}"

    def prepare(self, source: Installation, flags: str = "") -> None:
        """Copy the server's files and build the extension, unless both are up to date.

        The extension is installed into the copy, so the original stays unchanged and may even disappear.

        Args:
            source: The installation to copy.
            flags: Compiler options.
        """
        if self.version not in {None, source.version}:
            wanted = f"version {self.version} for the data in {self.data}"
            raise ServerError(f"PostgreSQL must be {wanted}, got {source.version}")
        if self.version is None and not (self.home / "server").exists() and _has_files(self.home):
            raise ServerError(f"{self.home} contains other files but no server; give a new or empty folder")
        self.home.mkdir(parents=True, exist_ok=True)
        self._check_access()
        server, staged = self.home / "server", self.home / "server.new"
        stamp = _stamp(source, flags)
        if _text(server / "stamp") == stamp:
            return
        shutil.rmtree(staged, ignore_errors=True)
        for folder in filter(None, (source.bindir, source.pkglibdir, source.sharedir, source.libraries)):
            # Programs find other files by relative paths, so the layout is kept below the new root.
            inside = staged / folder.relative_to("/")
            shutil.copytree(folder, inside, ignore=_UNNEEDED_FILES, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        install(source, staged, flags)
        (staged / "stamp").write_text(stamp)
        shutil.rmtree(server, ignore_errors=True)
        staged.rename(server)
        self.bin.unlink(missing_ok=True)
        self.bin.symlink_to(Path("server") / source.bindir.relative_to("/"))

    def start(self, port: int | None = None, settings: Mapping[str, object] | None = None) -> None:
        """Start the server, after creating its data if needed, and create the extension.

        Args:
            port: Port of localhost to listen on in addition to the socket; connections need the password.
            settings: Configuration parameters.

        Raises:
            ServerError: The port is in use, or the server does not start.
        """
        if port is not None and port_in_use(port):
            raise ServerError(f"port {port} is in use; give another")
        if self.version is None:
            self._create_data()
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
        """Stop the server; return whether it was running.

        Args:
            mode: "smart" waits for clients, "fast" disconnects them, "immediate" leaves recovery to the next start.
        """
        address = self.address
        if address is None:
            return False
        self._run("pg_ctl", "stop", "-w", "-D", str(self.data), "-m", mode)
        self._forget(Path(address.host))
        return True

    def psql(self, *words: str, user: str = "postgres") -> list[str]:
        """Return the command of psql on the running server."""
        at = self.where()
        return [str(self.bin / "psql"), "-h", at.host, "-p", str(at.port), "-U", user, *words, "postgres"]

    def query(self, sql: str) -> str:
        """Run SQL and return psql's output: one line a row, columns separated by |.

        Raises:
            ServerError: The server rejects the SQL.
        """
        done = capture(self.psql("-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql))
        if done.returncode:
            raise ServerError(done.stderr.strip())
        return done.stdout.strip()

    def _create_data(self) -> None:
        password = self._own(self.home / "password")
        password.write_text(secrets.token_urlsafe(16) + "\n")
        self._own(self.data, folder=True)
        methods = ["-A", "trust", "--auth-host=scram-sha-256", f"--pwfile={password}"]
        self._run("initdb", "-D", str(self.data), "-U", "postgres", *methods, "-N", "-E", "UTF8", "--no-locale")

    def _own(self, path: Path, *, folder: bool = False) -> Path:
        """Create a file or folder that only the server's user can access."""
        if folder:
            path.mkdir(mode=0o700, exist_ok=True)
        else:
            path.touch(mode=0o600)
        if user := self._user():
            os.chown(path, user.pw_uid, user.pw_gid)
        return path

    def _socket_folder(self) -> Path:
        """Return a private socket folder, a temporary one if the path is too long for a socket."""
        if len(os.fsencode(self.sockets)) < _MAX_SOCKET_PATH - len("/.s.PGSQL.12345.lock"):
            return self._own(self.sockets, folder=True)
        return self._own(Path(tempfile.mkdtemp(prefix="corgipile-pg-")), folder=True)

    def _forget(self, sockets: Path) -> None:
        if sockets not in {self.sockets, self.data}:
            shutil.rmtree(sockets, ignore_errors=True)

    def _user(self) -> pwd.struct_passwd | None:
        """Return the user that runs the server instead of root."""
        if os.geteuid() != 0:
            return None
        with contextlib.suppress(FileNotFoundError, KeyError):
            if owner := self.data.stat().st_uid:
                return pwd.getpwuid(owner)
        names = {entry.pw_name: entry for entry in pwd.getpwall()}
        return names.get("postgres") or names["nobody"]

    def _check_access(self) -> None:
        if (user := self._user()) is None:
            return
        if capture(["/bin/sh", "-c", 'cd "$0"', str(self.home)], user).returncode:
            cannot = f"user {user.pw_name}, who runs the server instead of root, cannot enter {self.home}"
            raise ServerError(f"{cannot}; give a folder that all users can enter, such as one in /var/lib")

    def _run(self, program: str, *words: str) -> None:
        done = capture([str(self.bin / program), *words], self._user())
        if done.returncode:
            message = done.stderr.strip() or done.stdout.strip()
            log = (_text(self.home / "log") or "").splitlines()[-8:] if program == "pg_ctl" else []
            raise ServerError("\n".join([f"{program}: {message}", *log]))


def default_home() -> Path:
    """Return the default folder of a user's server.

    Example:
        >>> default_home().parts[-2:]
        ('corgipile', 'pg')
    """
    if os.geteuid() == 0:
        return Path("/var/lib/corgipile/pg")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "corgipile" / "pg"


def _stamp(source: Installation, flags: str) -> str:
    """Return a digest of the installation, the compiler options and the sources."""
    digest = hashlib.sha256(f"{source} {flags} {os.environ.get('EXTRA_CFLAGS')}".encode())
    patterns = [f"postgres/{name}" for name in ("src/*.[ch]", "sql/*.sql", "*.control", "Makefile")]
    for pattern in ("kernel/**/*.h", *patterns):
        for path in sorted(sources().glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _has_files(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
