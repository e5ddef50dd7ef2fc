"""``corgipile pg install | start | stop | status | psql``."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corgipile.cli.console import command as guarded
from corgipile.errors import BadArgument
from corgipile.lazy import lazy

if TYPE_CHECKING:
    from corgipile import postgres
else:
    postgres = lazy("corgipile.postgres")

Home = Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Folder of the server; has a default.")]

group = typer.Typer(no_args_is_help=True)


@group.callback()
def command() -> None:
    """Train inside PostgreSQL: build the extension, or run a server with it."""


@group.command("install")
@guarded
def install(
    *, pg_config: Annotated[str | None, typer.Option(help="pg_config of the server; default: from PATH.")] = None
) -> None:
    """Build the extension for a PostgreSQL server, 15 or later, and install it there."""
    target = postgres.installed(pg_config)
    typer.echo(f"building for {target.name}", err=True)
    postgres.install(target)
    typer.echo(f"installed in {target.pkglibdir}; now run CREATE EXTENSION corgipile in a database")


@group.command("start")
@guarded
def start(
    home: Home = None,
    *,
    version: Annotated[int | None, typer.Option(help="18 or 16; default: the data's, or 18.")] = None,
    port: Annotated[int | None, typer.Option(help="Also listen on this port of localhost.", min=1, max=65535)] = None,
) -> None:
    """Start a PostgreSQL server from PyPI with the extension; print its connection string."""
    server = _server(home)
    if server.address is None:
        if not server.bin.exists():
            typer.echo(f"building the extension in {server.home}", err=True)
        server.prepare(postgres.embedded(version or server.version or max(postgres.EMBEDDED)))
        server.start(port)
    elif (version or server.version) != server.version:
        raise BadArgument(f"version must be {server.version}, got {version}; stop the server in {server.home} first")
    elif port not in {None, server.where().port}:
        raise BadArgument(f"port must be {server.where().port}, got {port}; stop the server in {server.home} first")
    typer.echo(server.url)


@group.command("stop")
@guarded
def stop(home: Home = None) -> None:
    """Stop the server; its data remain."""
    server = _server(home)
    server.where()
    server.stop()
    typer.echo(f"the server in {server.home} is stopped", err=True)


@group.command("status")
@guarded
def status(home: Home = None) -> None:
    """Print the connection string of the server; exit code 2 if it is not running."""
    typer.echo(_server(home).url)


@group.command("psql")
@guarded
def psql(
    home: Home = None,
    *,
    command: Annotated[list[str] | None, typer.Option("-c", "--command", help="SQL to run before exiting.")] = None,
) -> None:
    """Open psql on the server, or run SQL from -c or a pipe."""
    words = _server(home).psql(*(word for sql in command or () for word in ("-c", sql)))
    sys.stdout.flush()
    os.execv(words[0], words)  # noqa: S606 - psql replaces this process and gets its terminal and signals


def _server(home: Path | None) -> "postgres.Server":
    return postgres.Server(home or postgres.default_home())
