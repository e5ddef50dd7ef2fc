"""A small web server of byte ranges in a thread, whose answers a test may spoil."""

import contextlib
import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class Site:
    """What is served, and what happened.

    Attributes:
        files: Bytes by path.
        log: Of each request its method, path, range and headers.
        spoil: Called with the number of a request and its path; says what is wrong with the answer: None, a status,
            a delay in seconds (float), "short" (fewer bytes than said), "cut" (the connection ends) or "whole".
        etags: Whether there are ETags: True, False or "weak".
        latency: Seconds before each answer.
    """

    def __init__(self):
        self.files, self.log, self.etags, self.latency, self.tags = {}, [], True, 0.0, {}
        self.spoil = lambda number, path: None
        self.lock, self.busy, self.busiest = threading.Lock(), 0, 0
        self.url = ""

    def etag(self, path):
        data = self.files[path]
        if self.tags.get(path, (None,))[0] is not data:
            self.tags[path] = data, hashlib.md5(data, usedforsecurity=False).hexdigest()
        made = self.tags[path][1]
        return f'W/"{made}"' if self.etags == "weak" else f'"{made}"'

    def gets(self):
        return [entry for entry in self.log if entry[0] == "GET"]

    def bytes_sent(self):
        return sum(entry[3] for entry in self.gets())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        site = self.server.site
        with site.lock:
            number = len(site.log)
            entry = [self.command, self.path, self.headers.get("Range"), 0]
            site.log.append(entry)
            site.busy += 1
            site.busiest = max(site.busiest, site.busy)
        try:
            time.sleep(site.latency)
            self.answer(site, site.spoil(number, self.path), entry)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with site.lock:
                site.busy -= 1

    def answer(self, site, wrong, entry):
        path = unquote(urlsplit(self.path).path)
        if isinstance(wrong, float):
            time.sleep(wrong)
        if path not in site.files:
            return self.head(404, b"no such thing: secret words")
        data, tag = site.files[path], site.etag(path) if site.etags else None
        if isinstance(wrong, int) and not isinstance(wrong, bool):
            return self.head(wrong, b"secret words")
        if self.headers.get("If-Match") not in (None, tag):
            return self.head(412, b"")
        asked = self.headers.get("Range")
        if asked is None or wrong == "whole":
            return self.send(200, data, len(data), tag, None, entry)
        first, last = asked.removeprefix("bytes=").split("-")
        start = max(0, len(data) - int(last)) if not first else int(first)
        stop = len(data) if not first or not last else min(len(data), int(last) + 1)
        if start >= stop:
            return self.head(416, b"")
        part = data[start:stop]
        if wrong == "short":
            part = part[: len(part) // 2]
        length = len(data[start:stop]) if wrong == "cut" else len(part)
        part = part[: len(part) // 2] if wrong == "cut" else part
        return self.send(206, part, length, tag, f"bytes {start}-{stop - 1}/{len(data)}", entry)

    def head(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send(self, status, body, length, tag, told, entry):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if tag:
            self.send_header("ETag", tag)
        if told:
            self.send_header("Content-Range", told)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            entry[3] = len(body)
        if length != len(body):
            self.close_connection = True


@contextlib.contextmanager
def serving():
    """Run a server; give its site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.site = site = Site()
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
