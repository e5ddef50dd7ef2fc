"""An S3-like server of a folder, in its own process: slow, faulty or dishonest on request.

It supports reads (path style: GET and HEAD with ``Range``, ``If-Match`` and ``If-None-Match``, ListObjectsV2, error
documents), without signatures or writes: tests write files into its folder, where each folder is a bucket. ETags depend
on the content, as in S3. Its log has all requests and answers.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass, fields
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple, Self

from object_lists import blobs, page

CHUNK = 1 << 18
SLACK = 0.01  # seconds of oversleeping that later sleeps make up for
MAX_LOG = 200_000  # requests in the log
TEXT = {200: "OK", 206: "Partial Content", 304: "Not Modified", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}
TEXT |= {412: "Precondition Failed", 416: "Range Not Satisfiable", 500: "Internal Server Error", 501: "Not Implemented"}
TEXT |= {503: "Slow Down"}


@dataclass
class Settings:
    """Behaviour of the server; fault rates are shares of the object requests, drawn by the seed."""

    latency: float = 0.0  # seconds before an answer begins
    jitter: float = 0.0  # more seconds at most
    bandwidth: float = 0.0  # bytes a second of one answer; 0: unlimited
    link: float = 0.0  # bytes a second of all answers
    errors: float = 0.0  # answered 503 SlowDown
    stalls: float = 0.0  # stop for `stall` seconds, before the answer or in its body
    stall: float = 10.0
    truncated: float = 0.0  # end the body halfway, and the connection
    flipped: float = 0.0  # flip one bit of the body
    seed: int = 0
    status: int = 0  # answer everything with this status
    code: str = "InternalError"  # and this code of S3
    spared: int = 0  # first requests exempt from `status`
    whole: bool = False  # ignore Range: 200 and the whole object
    shift: int = 0  # answer 206 with bytes at this distance from the range, and name them in Content-Range
    less: int = 0  # send fewer bytes than the range has, with consistent headers
    grown: int = 0  # overstate the object's size in Content-Range and HEAD
    unmatched: bool = False  # ignore If-Match
    etag: bool = True  # send ETags
    token: str = ""  # reject as expired requests without this in Authorization or security token


class Request(NamedTuple):
    """One line of the log; the status is 0 until the answer ends."""

    method: str
    path: str
    range: str
    status: int
    sent: int  # bytes of the body
    fault: str


class _Failed(Exception):  # an answer, not an error
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class _Asked(NamedTuple):
    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    line: list[Any]  # of the log

    def ended(self, status: int, sent: int) -> None:
        """Record the answer."""
        self.line[3:5] = status, sent


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Return first and last byte of a Range header; None without a valid one."""
    kind, _, span = text.partition("=")
    first, dash, last = span.partition("-")
    if kind != "bytes" or not dash or "," in span or not (first or last):
        return None
    begin, end = (int(first), min(int(last or size), size - 1)) if first else (max(size - int(last), 0), size - 1)
    if begin >= size or end < begin:
        raise _Failed(416, "InvalidRange")
    return begin, end


class _Server:
    """Answers requests; only the event loop's thread touches its state."""

    def __init__(self, root: Path) -> None:
        self.root, self.settings = root, Settings()
        self.log: list[list[Any]] = []
        self.etags: dict[tuple[str, int, int, int], str] = {}
        self.asked, self.link_free = 0, 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after another."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, RuntimeError):
            while await self.one(reader, writer):
                pass
        writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path, _, query = target.partition("?")
        if path.startswith("/-/"):
            return await self.control(writer, path[3:], body)
        pairs = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(path)[1:].partition("/")
        line = [method, f"{bucket}/{key}", headers.get("range", "").removeprefix("bytes="), 0, 0, ""]
        self.log.append(line)
        del self.log[:-MAX_LOG]
        return await self.answer(writer, _Asked(method, bucket, key, pairs, headers, line))

    async def control(self, writer: asyncio.StreamWriter, what: str, body: bytes) -> bool:
        """Change settings or send the log."""
        if what == "settings":
            self.settings, self.asked = Settings(**json.loads(body)), 0
        lines = self.log
        if what == "clear":
            self.log = []
        await self.send(writer, 200, json.dumps(lines if what == "clear" else []).encode(), {})
        return True

    async def answer(self, writer: asyncio.StreamWriter, asked: _Asked) -> bool:
        """Answer for an object or a list, with the latency and faults of the settings."""
        now = self.settings
        self.asked += 1
        draw = random.Random(now.seed * 1_000_003 + self.asked)  # noqa: S311 - reproducible
        await asyncio.sleep(now.latency + now.jitter * draw.random())
        draws = [draw.random() < rate for rate in (now.errors, now.stalls, now.truncated, now.flipped)]
        fault = next((name for name, due in zip(("error", "stall", "cut", "flip"), draws, strict=True) if due), "")
        fault = fault if asked.key and asked.method == "GET" else ""
        amid = draw.random() < 0.5
        asked.line[-1] = fault
        if fault == "stall" and not amid:
            await asyncio.sleep(now.stall)
        try:
            self.refuse(asked, fault)
            if not asked.key:
                await self.send(writer, 200, self.listing(asked), {"Content-Type": "application/xml"})
                asked.ended(200, 0)
                return True
            return await self.object(writer, asked, fault if fault != "stall" or amid else "")
        except _Failed as failed:
            text = f"<?xml version='1.0'?><Error><Code>{failed.code}</Code><Message>{failed.code}</Message></Error>"
            body = b"" if asked.method == "HEAD" or failed.status == 304 else text.encode()
            asked.ended(failed.status, len(body))
            await self.send(writer, failed.status, body, {"Content-Type": "application/xml"})
            return True

    def refuse(self, asked: _Asked, fault: str) -> None:
        """Reject requests by the settings, such as those with wrong or expired credentials."""
        if self.settings.status and self.asked > self.settings.spared:
            raise _Failed(self.settings.status, self.settings.code)
        if fault == "error":
            raise _Failed(503, "SlowDown")
        shown = asked.headers.get("authorization", "") + asked.headers.get("x-amz-security-token", "")
        if self.settings.token not in shown:
            raise _Failed(*((400, "ExpiredToken") if shown else (403, "AccessDenied")))

    async def send(self, writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str]) -> None:
        """Send a small answer."""
        writer.write(_head(status, {"Content-Length": str(len(body)), **headers}) + body)
        await writer.drain()

    async def object(self, writer: asyncio.StreamWriter, asked: _Asked, fault: str) -> bool:
        """Answer for an object; return whether the connection stays open."""
        path = (self.root / asked.bucket / asked.key).resolve()
        if asked.method not in ("GET", "HEAD"):
            raise _Failed(501, "NotImplemented")
        if not path.is_relative_to(self.root) or not path.is_file():
            raise _Failed(404, "NoSuchKey" if (self.root / asked.bucket).is_dir() else "NoSuchBucket")
        with path.open("rb") as file:
            status, first, length, headers = await self.found(file, path, asked)
            writer.write(_head(status, headers))
            sent = 0
            try:
                if asked.method == "GET":
                    goal = length // 2 if fault == "cut" else length
                    await self.body(writer, file, first, goal, fault)
                    sent = goal
            finally:
                asked.ended(status, sent)
        await writer.drain()
        return fault != "cut"

    async def found(self, file: Any, path: Path, asked: _Asked) -> tuple[int, int, int, dict[str, str]]:
        """Return status, first byte, bytes to send, and the headers, which lie if the settings say so."""
        now, status = self.settings, os.fstat(file.fileno())
        etag = await self.etag(file, path, status)
        wanted = asked.headers.get("if-match", "*")
        if not now.unmatched and wanted not in ("*", etag):
            raise _Failed(412, "PreconditionFailed")
        if asked.headers.get("if-none-match") == etag:
            raise _Failed(304, "NotModified")
        headers = {"Last-Modified": formatdate(status.st_mtime, usegmt=True), "Accept-Ranges": "bytes"}
        headers |= {"ETag": etag} if now.etag else {}
        span = None if now.whole else parse_range(asked.headers.get("range", ""), status.st_size)
        if span is None:
            said = status.st_size + (now.grown if asked.method == "HEAD" else 0)
            return 200, 0, status.st_size, {**headers, "Content-Length": str(said)}
        first = max(0, span[0] + now.shift)
        length = max(0, min(span[1] - span[0] + 1, status.st_size - first) - now.less)
        headers["Content-Range"] = f"bytes {first}-{first + length - 1}/{status.st_size + now.grown}"
        return 206, first, length, {**headers, "Content-Length": str(length)}

    async def etag(self, file: Any, path: Path, status: os.stat_result) -> str:
        """Return the digest of a file's content, cached until it changes."""
        key = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self.etags:
            digest = await asyncio.to_thread(hashlib.file_digest, file, "md5")
            self.etags[key] = f'"{digest.hexdigest()}"'
        return self.etags[key]

    async def body(self, writer: asyncio.StreamWriter, file: Any, first: int, length: int, fault: str) -> None:
        """Send bytes of a file at the set speed."""
        await writer.drain()
        loop, now = asyncio.get_running_loop(), self.settings
        free, end = loop.time(), first + length
        for at in range(first, end, CHUNK):
            if fault == "stall" and at == first + (length // CHUNK // 2) * CHUNK:
                await asyncio.sleep(now.stall)
            count = min(CHUNK, end - at)
            free = await self.pace(free, count)
            if fault == "flip" and at == first:
                data = bytearray(os.pread(file.fileno(), count, at))
                data[count // 2] ^= 4
                writer.write(bytes(data))
                await writer.drain()
            else:
                await loop.sendfile(writer.transport, file, at, count)

    async def pace(self, free: float, count: int) -> float:
        """Wait until the bandwidths of answer and link admit these bytes; return when the answer may send more."""
        loop, now = asyncio.get_running_loop(), self.settings
        time = loop.time()
        ready = time
        if now.bandwidth:
            ready = free = max(free, time - SLACK) + count / now.bandwidth
        if now.link:
            self.link_free = max(self.link_free, time - SLACK) + count / now.link
            ready = max(ready, self.link_free)
        if ready > time:
            await asyncio.sleep(ready - time)
        return free

    def etag_of(self, path: Path) -> str:
        """Return the ETag of an object, from its content, which is read once."""
        status = path.stat()
        key = (str(path.resolve()), status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self.etags:
            self.etags[key] = f'"{hashlib.md5(path.read_bytes()).hexdigest()}"'  # noqa: S324 - as S3
        return self.etags[key]

    def listing(self, asked: _Asked) -> bytes:
        """Answer ListObjectsV2, and `location` with an empty document."""
        query, bucket = asked.query, self.root / asked.bucket
        if not asked.bucket or not bucket.is_dir():
            raise _Failed(404, "NoSuchBucket")
        if "location" in query:
            return b"<?xml version='1.0'?><LocationConstraint/>"
        prefix, mark = query.get("prefix", ""), query.get("delimiter", "")
        after = max(query.get("continuation-token", ""), query.get("start-after", ""))
        names = sorted(path.relative_to(bucket).as_posix() for path in bucket.rglob("*") if path.is_file())
        if query.get("comp") == "list":
            return blobs(bucket, [name for name in names if name.startswith(prefix)])
        shown: dict[str, str] = {}  # kinds of the listed names
        for name in names:
            if name.startswith(prefix):
                head, found, _ = name[len(prefix) :].partition(mark) if mark else (name, "", "")
                shown[prefix + head + found if found else name] = "folder" if found else "object"
        left = [name for name in sorted(shown) if name > after]
        most = int(query.get("max-keys", 1000))
        return page(bucket, prefix, [(name, shown[name]) for name in left[:most]], self.etag_of, more=len(left) > most)


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {TEXT.get(status, 'Status')}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


async def _main(root: Path) -> None:
    served = _Server(root)
    listener = await asyncio.start_server(served.serve, "127.0.0.1", 0, backlog=512)
    print(listener.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the parent process reads it
    # Ends with the process that started it, however that ends.
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


class ObjectServer:
    """A server in its own process.

    Args:
        root: Its folder; each folder in it is a bucket.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).resolve()
        command = [sys.executable, str(Path(__file__).resolve()), str(self.root)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self.settings = Settings()

    def set(self, **settings: Any) -> None:
        """Change some settings, and restart the count of requests."""
        known = {field.name for field in fields(Settings)}
        assert settings.keys() <= known, settings.keys() - known
        self.settings = Settings(**{**asdict(self.settings), **settings})
        self._ask("settings", json.dumps(asdict(self.settings)).encode())

    def reset(self) -> None:
        """Restore the defaults and clear the log."""
        self.settings = Settings()
        self.set()
        self.log()

    def log(self) -> list[Request]:
        """Return the requests since the last call."""
        return [Request(*line) for line in json.loads(self._ask("clear", b""))]

    def _ask(self, what: str, body: bytes) -> bytes:
        with urllib.request.urlopen(f"{self.url}/-/{what}", data=body, timeout=30) as answer:
            return bytes(answer.read())

    def environment(self, key: str = "tester") -> dict[str, str]:
        """Return the environment variables that lead S3 clients to it."""
        names = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        names |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true"}
        return {**names, "AWS_ENDPOINT_URL": self.url, "AWS_ENDPOINT": self.url, "S3_ENDPOINT_URL": self.url}

    def stop(self) -> None:
        """Stop the server."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]).resolve()))
