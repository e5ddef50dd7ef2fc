"""Object servers: ours, which fails on request, and an independent one, which checks signatures."""

import os
import shutil
import subprocess
import sys
import urllib.request
from typing import NamedTuple

import pytest
from object_server import ObjectServer
from patience import wait_for
from ports import free_port

from corgipile.stores.line import Times

MAY_HEDGE = Times.may_hedge


@pytest.fixture(scope="session")
def _server(tmp_path_factory):
    with ObjectServer(tmp_path_factory.mktemp("objects")) as server:
        yield server


@pytest.fixture
def objects(_server, monkeypatch):
    """Give a server with the empty bucket ``bucket``, which S3 clients find by the environment.

    Late answers, common on a busy machine, cause no second request, since tests count requests.
    """
    monkeypatch.setattr(Times, "may_hedge", lambda _: False)
    shutil.rmtree(_server.root / "bucket", ignore_errors=True)
    (_server.root / "bucket").mkdir()
    _server.reset()
    for name, value in _server.environment().items():
        monkeypatch.setenv(name, value)
    return _server


@pytest.fixture
def hedging(objects, monkeypatch):
    """Enable second requests after late answers."""
    monkeypatch.setattr(Times, "may_hedge", MAY_HEDGE)


class Hadro(NamedTuple):
    """The independent server: its address and its folder."""

    url: str
    root: os.PathLike[str]
    key: str
    secret: str


@pytest.fixture(scope="session")
def hadro(tmp_path_factory):
    """Give a server that checks signatures; skip if it is not installed."""
    pytest.importorskip("hadro")
    root = tmp_path_factory.mktemp("hadro")
    (root / "bucket").mkdir()
    port = free_port()
    keys = ["--access-key", "AKIATEST", "--secret-key", "shh/secret+key", "--region", "us-east-1"]
    command = [sys.executable, "-W", "ignore", "-m", "hadro", str(root), "--port", str(port), *keys]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: _answers(f"{url}/health", process), "an answer")
        yield Hadro(url, root, "AKIATEST", "shh/secret+key")
    finally:
        process.kill()
        process.wait()


def _answers(url, process):
    assert process.poll() is None, "it ended"
    try:
        with urllib.request.urlopen(url, timeout=60):
            return True
    except OSError:
        return False
