"""The server that tests of stores rely on does what it is told."""

import http.client
import time
import urllib.error
import urllib.request

import pytest
from patience import PATIENCE


def ask(server, key, method="GET", **headers):
    """Return status, body and headers."""
    wanted = urllib.request.Request(f"{server.url}/bucket/{key}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(wanted, timeout=PATIENCE) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


@pytest.fixture
def data(objects):
    data = bytes(range(256)) * 4096
    (objects.root / "bucket" / "a").write_bytes(data)
    return data


def test_ranges(objects, data):
    status, body, headers = ask(objects, "a", Range="bytes=10-19")
    assert (status, body, headers["Content-Range"]) == (206, data[10:20], f"bytes 10-19/{len(data)}")
    assert ask(objects, "a", Range="bytes=-5")[1] == data[-5:]
    assert ask(objects, "a", Range=f"bytes={len(data) - 1}-")[1] == data[-1:]
    assert ask(objects, "a", Range=f"bytes={len(data)}-")[0] == 416
    assert ask(objects, "a")[:2] == (200, data)
    assert [line.sent for line in objects.log()][:2] == [10, 5]


def test_conditions(objects, data):
    etag = ask(objects, "a", "HEAD")[2]["ETag"]
    assert ask(objects, "a", **{"If-Match": etag})[0] == 200
    (objects.root / "bucket" / "a").write_bytes(data[::-1])
    assert ask(objects, "a", **{"If-Match": etag})[0] == 412
    (objects.root / "bucket" / "a").write_bytes(data)
    assert ask(objects, "a", "HEAD")[2]["ETag"] == etag  # identity by content


def test_lists(objects, data):
    (objects.root / "bucket" / "part=1").mkdir()
    for i in range(3):
        (objects.root / "bucket" / "part=1" / f"{i}.x").write_bytes(b"x")
    body = ask(objects, "?list-type=2&prefix=part%3D1/&max-keys=2")[1]
    assert b"<Key>part=1/1.x</Key>" in body
    assert b"<NextContinuationToken>part=1/1.x<" in body
    body = ask(objects, "?list-type=2&delimiter=/")[1]
    assert b"<Prefix>part=1/</Prefix></CommonPrefixes>" in body
    assert body.count(b"<Key>") == 1


def test_time(objects, data):
    objects.set(latency=0.05, bandwidth=len(data) / 0.1)
    start = time.perf_counter()
    ask(objects, "a")
    assert time.perf_counter() - start > 0.13


@pytest.mark.parametrize(
    ("setting", "status"), [({"errors": 1.0}, 503), ({"status": 403, "code": "AccessDenied"}, 403)]
)
def test_refusals(objects, data, setting, status):
    objects.set(**setting)
    assert ask(objects, "a")[0] == status


def test_lies(objects, data):
    objects.set(shift=3)
    assert ask(objects, "a", Range="bytes=10-19")[1] == data[13:23]
    objects.set(shift=0, less=4)
    assert ask(objects, "a", Range="bytes=10-19")[1] == data[10:16]
    objects.set(less=0, whole=True)
    assert ask(objects, "a", Range="bytes=10-19")[:2] == (200, data)
    objects.set(whole=False, truncated=1.0)
    with pytest.raises(http.client.IncompleteRead):
        ask(objects, "a")
    objects.set(truncated=0.0, flipped=1.0)
    body = ask(objects, "a")[1]
    assert sum(a != b for a, b in zip(body, data, strict=True)) == 1


def test_stalls(objects, data):
    objects.set(stalls=1.0, stall=0.2)
    start = time.perf_counter()
    assert ask(objects, "a")[1] == data
    assert time.perf_counter() - start > 0.19


def test_credentials_that_expire(objects, data):
    objects.set(token="fresh")
    assert ask(objects, "a")[0] == 403
    assert b"ExpiredToken" in ask(objects, "a", **{"x-amz-security-token": "stale"})[1]
    assert ask(objects, "a", **{"x-amz-security-token": "fresh"})[0] == 200


def test_hadro_refuses_who_does_not_sign(hadro):
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{hadro.url}/bucket?list-type=2", timeout=PATIENCE)
