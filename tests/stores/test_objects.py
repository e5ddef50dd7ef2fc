"""Ranges of objects: exact whatever the store does, or an error that says what it was, and no secret."""

import os
import traceback

import numpy as np
import pytest

from corgipile.errors import BadArgument, CorgiPileError, CorruptFile, MissingFile, ReadFailed
from corgipile.stores import objects as objects_module
from corgipile.stores import requests
from corgipile.stores.line import line
from corgipile.stores.objects import open_object
from corgipile.stores.opening import list_objects
from corgipile.urls import RemotePath

pytest.importorskip("obstore")
SIZE = 3_000_000


@pytest.fixture
def data(objects):
    data = np.random.default_rng(0).bytes(SIZE)
    (objects.root / "bucket" / "a b").mkdir()
    (objects.root / "bucket" / "a b" / "x=1.bin").write_bytes(data)
    return np.frombuffer(data, np.uint8)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(requests, "PATIENCE", 0.6)
    monkeypatch.setattr(objects_module, "OPENING", 0.6)


def opened(server, scheme="s3"):
    url = "s3://bucket/a b/x=1.bin" if scheme == "s3" else f"{server.url}/bucket/a%20b/x=1.bin?X-Amz-Signature=c0ffee"
    return open_object(RemotePath(url))


def check(ranges, data, count=60, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 30_000, count)
    offsets = random.integers(0, SIZE - 30_000, count)
    to = np.cumsum(lengths) - lengths
    out = np.zeros(lengths.sum(), np.uint8)
    ranges.fetch(offsets, lengths, out, to)
    wanted = [data[offset : offset + length] for offset, length in zip(offsets, lengths, strict=True)]
    assert np.array_equal(out, np.concatenate(wanted))


def failure(ranges, data):
    with pytest.raises(CorgiPileError) as error:
        check(ranges, data)
    text = "".join(traceback.format_exception(error.value))
    assert "c0ffee" not in text
    assert "secret" not in text.replace("AWS_SECRET_ACCESS_KEY", "")
    return error.value


@pytest.mark.parametrize("scheme", ["s3", "http"])
def test_ranges_and_what_an_opening_tells(objects, data, scheme):
    ranges, tail = opened(objects, scheme)
    assert (ranges.size, tail) == (SIZE, data[-len(tail) :].tobytes())
    assert ranges.etag.startswith('"')
    assert "c0ffee" not in repr(ranges)
    assert len(objects.log()) == 1
    check(ranges, data)
    assert {line.status for line in objects.log()} == {206}


def test_small_and_empty_objects(objects):
    for size in (0, 1, 70_000):
        (objects.root / "bucket" / "one").write_bytes(bytes(size))
        ranges, tail = open_object(RemotePath("s3://bucket/one"))
        assert (ranges.size, len(tail)) == (size, min(size, 65536))


def test_errors_stalls_and_cut_answers_go_unnoticed(objects, data, hedging):
    ranges, _ = opened(objects)
    objects.set(latency=0.002)
    check(ranges, data)  # how long answers take becomes known
    objects.set(errors=0.1, stalls=0.05, stall=20.0, truncated=0.05, jitter=0.002, seed=3)
    for seed in range(4):
        check(ranges, data, seed=seed)
    assert {"error", "cut"} <= {line.fault for line in objects.log()}  # those that stall still do


def test_many_requests_at_a_time_but_not_too_many(objects, data, monkeypatch):
    ranges, _ = opened(objects)
    objects.set(latency=0.05)
    offsets, together, hedged = np.arange(40) * 70_000, [], requests._hedged

    async def noting(line, *asked):
        together.append(line.turns.under_way)
        return await hedged(line, *asked)

    monkeypatch.setattr(requests, "_hedged", noting)
    ranges.fetch(offsets, np.full(40, 10), np.zeros(400, np.uint8), np.arange(40) * 10)
    assert max(together) > 30
    assert line().turns.under_way == 0
    together.clear()
    with line().turns.few(10):
        ranges.fetch(offsets, np.full(40, 10), np.zeros(400, np.uint8), np.arange(40) * 10)
    assert max(together) == 10
    assert line().turns.under_way == 0


@pytest.mark.parametrize("lie", [{"whole": True}, {"shift": 7}, {"less": 3}, {"grown": 5}, {"status": 416}])
def test_a_server_that_lies_is_found_out(objects, data, lie, impatient):
    ranges, _ = opened(objects)
    objects.set(**lie)
    assert isinstance(failure(ranges, data), CorruptFile | ReadFailed)
    with pytest.raises((CorruptFile, ReadFailed)):
        opened(objects)


def test_a_changed_object_is_an_error(objects, data):
    ranges, _ = opened(objects)
    (objects.root / "bucket" / "a b" / "x=1.bin").write_bytes(data[::-1].tobytes())
    assert "changed or replaced" in str(failure(ranges, data))
    objects.set(unmatched=True)  # a server that does not know If-Match
    assert "changed or replaced" in str(failure(ranges, data))
    check(opened(objects)[0], data[::-1])


def test_without_etags_the_time_of_change_tells(objects, data):
    objects.set(etag=False)
    ranges, _ = opened(objects)
    assert ranges.etag == ""
    check(ranges, data)
    path = objects.root / "bucket" / "a b" / "x=1.bin"
    path.write_bytes(data[::-1].tobytes())
    os.utime(path, (1, 1))
    assert "changed or replaced" in str(failure(ranges, data))


@pytest.mark.parametrize("scheme", ["s3", "http"])
@pytest.mark.parametrize(("status", "kind", "words"), [(403, ReadFailed, "403"), (404, MissingFile, "no object")])
def test_refusals_say_what_helps(objects, data, scheme, status, kind, words):
    ranges, _ = opened(objects, scheme)
    objects.set(status=status, code="AccessDenied")
    found = failure(ranges, data)
    assert isinstance(found, kind)
    assert words in str(found)
    assert status != 403 or scheme != "s3" or "AWS_ACCESS_KEY_ID" in str(found)


def test_nobody_answers(data, objects, impatient, monkeypatch):
    ranges, _ = opened(objects)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://me:c0ffee@127.0.0.1:9")
    assert "no connection" in str(failure(ranges, data))


def test_credentials_that_expire_are_looked_for_anew(objects, data, monkeypatch):
    ranges, _ = opened(objects)
    objects.set(token="AKIANEW")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANEW")
    check(ranges, data)


def test_no_such_key(objects):
    with pytest.raises(MissingFile, match="s3://bucket/nothing"):
        open_object(RemotePath("s3://bucket/nothing"))
    with pytest.raises(BadArgument, match="must name an object"):
        open_object(RemotePath("s3://bucket/a//b"))


def test_bytes_that_an_object_does_not_have(objects, data):
    ranges, _ = opened(objects)
    with pytest.raises(CorruptFile, match="it has 3000000"):
        ranges.fetch(np.array([SIZE - 1]), np.array([2]), np.zeros(2, np.uint8), np.array([0]))


def test_in_a_fork_all_is_made_anew(objects, data):
    ranges, _ = opened(objects)
    check(ranges, data)
    child = os.fork()
    if not child:
        try:
            check(ranges, data, seed=1)
            check(opened(objects, "http")[0], data)
        except BaseException:  # noqa: BLE001 - the parent sees that there was one
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    check(ranges, data, seed=2)


def test_a_server_that_others_wrote_and_that_checks_signatures(hadro, monkeypatch):
    data = np.random.default_rng(2).integers(0, 256, SIZE, np.uint8)
    (hadro.root / "bucket" / "x=1 ä.bin").write_bytes(data.tobytes())
    monkeypatch.setenv("AWS_ENDPOINT_URL", hadro.url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", hadro.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", hadro.secret)
    ranges, _ = open_object(RemotePath("s3://bucket/x=1 ä.bin"))
    check(ranges, data)
    found = list(list_objects(RemotePath("s3://bucket/")))
    assert ("x=1 ä.bin", SIZE) in [one[:2] for one in found]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ReadFailed, match="AWS_ACCESS_KEY_ID"):
        open_object(RemotePath("s3://bucket/x=1 ä.bin"))
    with pytest.raises(ReadFailed, match="AWS_ACCESS_KEY_ID"):
        list(list_objects(RemotePath("s3://bucket/")))
