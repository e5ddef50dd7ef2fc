"""A fake Hub: lists repositories, and redirects requests for files to signed addresses."""

import contextlib
import hashlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_secrettoken"  # noqa: S105 - of a test


class Hub:
    """The files of one repository by commit, the newest last, and a log of requests.

    Attributes:
        commits: Files by name, of each commit.
        signature: Current signature of addresses; earlier ones have expired.
        asked: Requests: path, range, and whether they had a token.
    """

    def __init__(self) -> None:
        self.commits: list[dict[str, bytes]] = []
        self.signature, self.url = 0, ""
        self.asked: list[tuple[str, str, bool]] = []

    def answer(self, ask: BaseHTTPRequestHandler) -> None:
        """Answer a request."""
        parts = urllib.parse.urlsplit(ask.path)
        path = urllib.parse.unquote(parts.path)
        named = ask.headers.get("Authorization") == f"Bearer {TOKEN}"
        self.asked.append((path, ask.headers.get("Range", ""), "Authorization" in ask.headers))
        if path.startswith("/cdn/"):
            _, _, commit, name = path.split("/", 3)
            if parts.query != f"Signature=s{self.signature}":
                return _send(ask, 403, b"expired " + parts.query.encode())
            return _send_range(ask, self.commits[int(commit)][name])
        if not named:
            return _send(ask, 401, b"", {"X-Error-Code": "RepoNotFound"})
        if path.startswith("/api/"):
            return self._tell(ask, path)
        revision, _, name = path.partition("/resolve/")[2].partition("/")
        commit = self._commit(revision)
        if commit is None or name not in self.commits[commit]:
            return _send(ask, 404, b"", {"X-Error-Code": "EntryNotFound"})
        data = self.commits[commit][name]
        linked = {"X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Linked-Size": str(len(data))}
        elsewhere = self.url.replace("127.0.0.1", "localhost")  # another host
        where = f"{elsewhere}/cdn/{commit}/{name}?Signature=s{self.signature}"
        return _send(ask, 302, b"", {**linked, "X-Repo-Commit": f"{commit:040}", "Location": where})

    def _commit(self, revision: str) -> int | None:
        if revision == "main":
            return len(self.commits) - 1
        return int(revision) if revision.isdecimal() and int(revision) < len(self.commits) else None

    def _tell(self, ask: BaseHTTPRequestHandler, path: str) -> None:
        newest = len(self.commits) - 1
        if "/tree/" in path:
            below = path.partition("/tree/")[2].partition("/")[2]
            found = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}  # noqa: S324
                for name, data in self.commits[newest].items()
                if name.startswith(below)
            ]
            return _send(ask, 200, json.dumps(found).encode())
        about = {"id": "me/set", "sha": f"{newest:040}", "siblings": [], "private": True, "tags": [], "downloads": 0}
        return _send(ask, 200, json.dumps({**about, "disabled": False, "gated": False, "likes": 0}).encode())


def _send_range(ask: BaseHTTPRequestHandler, data: bytes) -> None:
    first, _, last = ask.headers["Range"].removeprefix("bytes=").partition("-")
    part = data[int(first) : int(last) + 1]
    _send(ask, 206, part, {"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"})


def _send(ask: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    ask.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        ask.send_header(name, value)
    ask.end_headers()
    if ask.command != "HEAD":
        ask.wfile.write(body)


@contextlib.contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Run a server of the Hub."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.answer(self)

        do_HEAD = do_GET  # noqa: N815 - as the library has it

        def log_message(self, *_: Any) -> None:
            pass

    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
