"""Runs a server's programs and checks processes and ports."""

import os
import pwd
import socket
import subprocess
import tempfile
from typing import Any


def capture(command: list[str], user: pwd.struct_passwd | None = None) -> "subprocess.CompletedProcess[str]":
    r"""Run a program without the environment's PG* variables, as another user if given, and capture its output.

    Output goes through files, since a server started by the program would keep a pipe open.

    Example:
        >>> capture(["echo", "up"]).stdout
        'up\n'
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    who: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
        done = subprocess.run(command, check=False, cwd="/", env=environment, **streams, **who)  # noqa: S603
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, out.read(), err.read())


def alive(pid: int) -> bool:
    """Return whether a process exists, whoever owns it.

    Example:
        >>> alive(os.getpid())
        True
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def port_in_use(port: int) -> bool:
    """Return whether a port of localhost is in use.

    Example:
        >>> with socket.create_server(("127.0.0.1", 0)) as other:
        ...     port_in_use(other.getsockname()[1])
        True
    """
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False
