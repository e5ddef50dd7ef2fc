"""An S3-like server of a folder, in a process of its own: slow, faulty and dishonest to order.

It reads as S3 does (path style: GET and HEAD with ``Range``, ``If-Match`` and ``If-None-Match``, ListObjectsV2, error
documents), signs nothing, and writes nothing: tests write files into its folder, each folder there being a bucket.
ETags are of the content, as those of S3. What it was asked, and how it answered, is in its log.
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
SLACK = 0.01  # seconds that a sleep too long may be made up for
KEPT = 200_000  # requests in the log
TEXT = {200: "OK", 206: "Partial Content", 304: "Not Modified", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}
TEXT |= {412: "Precondition Failed", 416: "Range Not Satisfiable", 500: "Internal Server Error", 501: "Not Implemented"}
TEXT |= {503: "Slow Down"}


@dataclass
class Settings:
    """How the server behaves; rates of faults are shares of the requests for objects, drawn by the seed."""

    latency: float = 0.0  # seconds before an answer begins
    jitter: float = 0.0  # up to so much more
    bandwidth: float = 0.0  # bytes a second of one answer; 0: as fast as it goes
    link: float = 0.0  # of all answers together
    errors: float = 0.0  # answered 503 SlowDown
    stalls: float = 0.0  # that stop for `stall` seconds, before the answer or amid its body
    stall: float = 10.0
    truncated: float = 0.0  # whose body ends halfway, then the connection does
    flipped: float = 0.0  # with one bit of the body flipped
    seed: int = 0
    status: int = 0  # answer everything with this status
    code: str = "InternalError"  # and this code of S3
    spared: int = 0  # but for so many requests that come first
    whole: bool = False  # ignore Range: 200 and the whole object
    shift: int = 0  # say 206 and the range asked for, send bytes so far beside it and say that in Content-Range
    less: int = 0  # send so many bytes less than the range has, with headers that fit the bytes sent
    grown: int = 0  # name a size of the object so much larger, in Content-Range and of HEAD
    unmatched: bool = False  # ignore If-Match
    etag: bool = True  # name one
    token: str = ""  # refuse, as expired, requests that do not hold this in their Authorization or security token


class Request(NamedTuple):
    """One line of the log; the status is 0 as long as the answer has not ended."""

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
        """Note how it was answered."""
        self.line[3:5] = status, sent


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Return first and last byte of a Range header; None if there is none that counts."""
    kind, _, span = text.partition("=")
    first, dash, last = span.partition("-")
    if kind != "bytes" or not dash or "," in span or not (first or last):
        return None
    begin, end = (int(first), min(int(last or size), size - 1)) if first else (max(size - int(last), 0), size - 1)
    if begin >= size or end < begin:
        raise _Failed(416, "InvalidRange")
    return begin, end


class _Server:
    """Answers requests; all state is of the one thread that the event loop runs in."""

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
        """Answer one request; say whether the connection goes on."""
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
        del self.log[:-KEPT]
        return await self.answer(writer, _Asked(method, bucket, key, pairs, headers, line))

    async def control(self, writer: asyncio.StreamWriter, what: str, body: bytes) -> bool:
        """Change settings or tell the log."""
        if what == "settings":
            self.settings, self.asked = Settings(**json.loads(body)), 0
        lines = self.log
        if what == "clear":
            self.log = []
        await self.send(writer, 200, json.dumps(lines if what == "clear" else []).encode(), {})
        return True

    async def answer(self, writer: asyncio.StreamWriter, asked: _Asked) -> bool:
        """Answer for an object or a list, late and with what faults are due."""
        now = self.settings
        self.asked += 1
        draw = random.Random(now.seed * 1_000_003 + self.asked)  # noqa: S311 - to be had again
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
        """Refuse what is to be refused: credentials too that are not, or no longer, those that are wanted."""
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
        """Answer for an object; say whether the connection goes on."""
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
        """Return status, first byte, bytes to send, and headers that say so, or otherwise where lies are ordered."""
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
        """Return the digest of a file's content, computed once for each state of it."""
        key = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self.etags:
            digest = await asyncio.to_thread(hashlib.file_digest, file, "md5")
            self.etags[key] = f'"{digest.hexdigest()}"'
        return self.etags[key]

    async def body(self, writer: asyncio.StreamWriter, file: Any, first: int, length: int, fault: str) -> None:
        """Send bytes of a file at the speed that is set."""
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
        """Wait until an answer, and the link, have room for so many bytes; return when the answer is free again."""
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
        """Return the ETag of an object: of its content, which is read once."""
        status = path.stat()
        key = (str(path.resolve()), status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self.etags:
            self.etags[key] = f'"{hashlib.md5(path.read_bytes()).hexdigest()}"'  # noqa: S324 - as S3
        return self.etags[key]

    def listing(self, asked: _Asked) -> bytes:
        """Answer ListObjectsV2, and for `location` that there is nothing to say."""
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
        shown: dict[str, str] = {}  # what is listed, and as what
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
    print(listener.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - read by who starts it
    # Ends with the process that started it, however that ends.
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)


class ObjectServer:
    """A server in a process of its own.

    Args:
        root: The folder it serves; each folder in it is a bucket.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).resolve()
        command = [sys.executable, str(Path(__file__).resolve()), str(self.root)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self.settings = Settings()

    def set(self, **settings: Any) -> None:
        """Have it behave otherwise from now on; what is not named stays. Requests are counted anew."""
        known = {field.name for field in fields(Settings)}
        assert settings.keys() <= known, settings.keys() - known
        self.settings = Settings(**{**asdict(self.settings), **settings})
        self._ask("settings", json.dumps(asdict(self.settings)).encode())

    def reset(self) -> None:
        """Have it behave well, and forget its log."""
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
        """Return the variables by which clients of S3 find it."""
        names = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        names |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true"}
        return {**names, "AWS_ENDPOINT_URL": self.url, "AWS_ENDPOINT": self.url, "S3_ENDPOINT_URL": self.url}

    def stop(self) -> None:
        """End it."""
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
