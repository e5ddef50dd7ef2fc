"""The cache delivers what the store has, whatever happens to its files, and keeps within its size."""

import copy
import ctypes
import errno
import os
import shutil
import threading

import numpy as np
import pytest
from fake_ranges import FakeRanges, read, true
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import BadArgument, BadSize, CorruptFile, WriteFailed
from corgipile.stores import cache_folder
from corgipile.stores.cache import Cached
from corgipile.stores.cache_pages import PAGE, SEGMENT

MB = 1 << 20


def files(folder):
    """Return the files of pages."""
    return sorted(path for path in folder.rglob("*-*") if path.is_file() and not path.name.startswith("."))


def used(folder):
    """Return the bytes that the folder has on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@st.composite
def objects_and_reads(draw):
    """Draw an object and some lists of ranges of it."""
    size = draw(st.one_of(st.integers(0, 5 * PAGE), st.integers(SEGMENT * PAGE - PAGE, SEGMENT * PAGE + 3 * PAGE)))
    offset = st.integers(0, size)
    span = offset.flatmap(lambda at: st.tuples(st.just(at), st.integers(0, min(size - at, 3 * PAGE))))
    return size, draw(st.lists(st.lists(span, max_size=6), min_size=1, max_size=4))


@settings(max_examples=40)
@given(objects_and_reads())
def test_reads_are_those_of_the_object_and_each_page_is_fetched_once(tmp_path_factory, drawn):
    size, reads = drawn
    fake = FakeRanges(size)
    cached = Cached(fake, tmp_path_factory.mktemp("cache"), "64MB")
    for spans in reads:
        before = len(fake.calls)
        assert read(cached, spans) == true(fake, spans)
        assert len(fake.calls) <= before + 1
    pages = {page for spans in reads for at, n in spans if n for page in range(at // PAGE, (at + n - 1) // PAGE + 1)}
    assert fake.fetched == sum(min(PAGE, size - page * PAGE) for page in pages) == cached.from_store
    before = len(fake.calls)
    again = copy.copy(cached)  # as pickling does
    assert [read(again, spans) for spans in reads] == [true(fake, spans) for spans in reads]
    assert len(fake.calls) == before
    assert again.from_store == 0


@settings(max_examples=30)
@given(st.data())
def test_damage_on_the_disk_is_fetched_anew(tmp_path_factory, data):
    folder, fake = tmp_path_factory.mktemp("cache"), FakeRanges(40 * PAGE + 5)
    spans = [(0, fake.size)]
    read(Cached(fake, folder, "8MB"), spans)
    (path,) = files(folder)
    held = bytearray(path.read_bytes())
    where = SEGMENT * 8 + data.draw(st.integers(0, fake.size - 1)) if data.draw(st.booleans()) else None
    where = data.draw(st.integers(0, 41 * 8 - 1)) if where is None else where
    how = data.draw(st.sampled_from(["flip", "cut", "zeros", "swap"]))
    if how == "flip":
        held[where] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "cut":
        del held[where:]
    elif how == "zeros":
        held[where:] = bytes(len(held) - where)
    else:  # two pages change places, with their entries
        one, two = SEGMENT * 8, SEGMENT * 8 + PAGE
        held[one : one + PAGE], held[two : two + PAGE] = held[two : two + PAGE], held[one : one + PAGE]
        held[:8], held[8:16] = held[8:16], held[:8]
    path.write_bytes(held)
    fake.calls.clear()
    cached = Cached(fake, folder, "8MB")
    assert read(cached, spans) == true(fake, spans)
    calls = len(fake.calls)
    assert calls == 1 or how == "zeros"  # which may have been there
    assert fake.fetched in {"flip": (PAGE, 5), "swap": (2 * PAGE,)}.get(how, (fake.fetched,))
    assert read(cached, spans) == true(fake, spans)
    assert len(fake.calls) == calls  # it was mended


def test_an_object_that_changed_is_another(tmp_path):
    one, two = FakeRanges(3 * PAGE), FakeRanges(3 * PAGE, etag="2")
    for fake in (one, two, FakeRanges(3 * PAGE, name="b"), FakeRanges(4 * PAGE)):
        assert read(Cached(fake, tmp_path, "4MB"), [(5, 100)]) == true(fake, [(5, 100)])
        assert len(fake.calls) == 1
    with pytest.raises(BadArgument, match="sends no ETag"):
        Cached(FakeRanges(10, etag=""), tmp_path, "4MB")


def test_what_is_asked_for_wrongly_is_said_by_the_store(tmp_path):
    cached = Cached(FakeRanges(100), tmp_path, "4MB")
    with pytest.raises(CorruptFile, match="ends before byte 101"):
        read(cached, [(0, 10), (91, 10)])
    assert files(tmp_path) == []


def test_large_reads_come_in_few_fetches_of_all_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("corgipile.stores.cache.AT_ONCE", 64)
    fake = FakeRanges(200 * PAGE)
    cached = Cached(fake, tmp_path, "16MB")
    read(cached, [(50 * PAGE, 10)])
    assert read(cached, [(0, fake.size)]) == true(fake, [(0, fake.size)])
    assert [len(lengths) for _, lengths in fake.calls] == [1, 2, 1, 1, 1]  # around the page that was there; by 64 pages
    assert fake.fetched == fake.size


def test_it_keeps_within_its_size_and_what_is_open_stays(tmp_path):
    one = FakeRanges(3 * MB, "one")
    cached = Cached(one, tmp_path, "4MB")
    read(cached, [(0, 3 * MB)])
    for i in range(4):
        other = Cached(FakeRanges(2 * MB, str(i)), tmp_path, "4MB")
        read(other, [(0, 2 * MB)])
        assert used(tmp_path) <= 4 * MB
        del other
    read(cached, [(0, 3 * MB)])
    assert one.fetched == 3 * MB  # none of it had gone
    key = files(tmp_path)[0].name.split("-")[0]
    assert sum(path.name.startswith(key) for path in files(tmp_path)) >= 1
    del cached
    last = Cached(FakeRanges(3 * MB, "last"), tmp_path, "4MB")
    last._folder._refused = -100.0  # as after some time
    read(last, [(0, 3 * MB)])
    before = last.from_store
    read(last, [(0, 3 * MB)])
    assert last.from_store - before <= 0.3 * MB  # room was made for it
    assert used(tmp_path) <= 4 * MB


def test_a_table_larger_than_the_cache_keeps_a_part_from_pass_to_pass(tmp_path):
    fake = FakeRanges(8 * MB)
    cached = Cached(fake, tmp_path, "4MB")
    order = np.random.default_rng(0)
    for _ in range(3):
        before = fake.fetched
        for block in order.permutation(64).tolist():
            span = [(block * MB // 8, MB // 8)]
            assert read(cached, span) == true(fake, span)
        assert used(tmp_path) <= 4 * MB
    assert fake.fetched - before <= 4.5 * MB  # an LRU cache would fetch some 7 MB


def test_what_was_used_last_outlives_what_was_not(tmp_path):
    fakes = [FakeRanges(MB, name) for name in "abc"]
    for fake, age in zip(fakes, (300, 100, 200), strict=True):
        read(Cached(fake, tmp_path, "4MB"), [(0, MB)])
        path = max(files(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    read(Cached(fakes[0], tmp_path, "4MB"), [(0, 10)])  # used again
    read(Cached(FakeRanges(int(1.5 * MB), "d"), tmp_path, "4MB"), [(0, int(1.5 * MB))])
    for fake, stays in zip(fakes, (True, True, False), strict=True):
        fake.calls.clear()
        read(Cached(fake, tmp_path, "4MB"), [(0, MB)])
        assert (fake.calls == []) == stays


def test_a_full_disk_ends_the_keeping_with_one_warning(tmp_path, monkeypatch):
    fake = FakeRanges(8 * MB)
    cached = Cached(fake, tmp_path, "16MB")
    read(cached, [(0, MB)])
    write = os.pwrite

    def full(file, data, at):
        if len(data) > 4096:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.warns(RuntimeWarning, match=r"No space left on device.*continuing without"):
        assert read(cached, [(0, 8 * MB)]) == true(fake, [(0, 8 * MB)])
    assert read(cached, [(0, 8 * MB)]) == true(fake, [(0, 8 * MB)])  # a second warning would be an error
    assert fake.fetched == 15 * MB  # what was there stays there


def test_a_disk_that_it_fills(tmp_path, small_disk):
    fake = FakeRanges(8 * MB)
    cached = Cached(fake, small_disk, "16MB")
    assert read(cached, [(0, MB)]) == true(fake, [(0, MB)])
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        assert read(cached, [(MB, 7 * MB)]) == true(fake, [(MB, 7 * MB)])
    before = fake.fetched
    assert read(cached, [(0, 8 * MB)]) == true(fake, [(0, 8 * MB)])
    assert fake.fetched - before < 7 * MB


@pytest.fixture
def small_disk(tmp_path):
    """Give a file system of 4 MB; skipped where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", bytes(place), b"tmpfs", 0, b"size=4m"):
        pytest.skip(f"nothing may be mounted here: {os.strerror(ctypes.get_errno())}")
    yield place
    libc.umount2(bytes(place), 2)


def test_folders_that_do_not_serve(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for bad in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "none" / "below"):
        with pytest.raises(WriteFailed, match=r"cannot be written as a cache: .*; pass a writable folder"):
            Cached(FakeRanges(10), bad, "4MB")
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(BadArgument, match="must be a folder of user 4000000"):
        Cached(FakeRanges(10), tmp_path / "other", "4MB")


@pytest.mark.parametrize(
    ("size", "error"),
    [("1KB", BadArgument), ("many", BadSize), (0, BadSize), ("200%", BadSize), (None, None), ("50%", None)],
)
def test_sizes(tmp_path, size, error):
    if error is None:
        assert Cached(FakeRanges(10), tmp_path, size)._folder.size > MB
        return
    with pytest.raises(error, match="cache_size"):
        Cached(FakeRanges(10), tmp_path, size)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    real = os.open

    def readonly(path, flags, *rest, **named):
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", readonly)
    with pytest.raises(WriteFailed, match="Read-only file system; pass a writable folder"):
        Cached(FakeRanges(10), tmp_path, "4MB")


def test_threads(tmp_path):
    fake = FakeRanges(64 * PAGE)
    cached = Cached(fake, tmp_path, "8MB")
    wrong = []

    def work(seed):
        draw = np.random.default_rng(seed)
        for _ in range(30):
            spans = [(int(at), 3000) for at in draw.integers(0, fake.size - 3000, 5)]
            wrong.extend([seed] if read(cached, spans) != true(fake, spans) else [])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def open_in(folder):
    """Return how many files of a folder this process has open."""
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - the list itself is open
    return sum(os.path.realpath(link).startswith(f"{folder}/") for link in links)


def test_no_descriptors_stay_open_and_none_left_is_no_harm(tmp_path):
    resource = pytest.importorskip("resource")
    fake = FakeRanges(20 * PAGE)
    cached = Cached(fake, tmp_path, "8MB")
    read(cached, [(0, PAGE)])
    before = open_in(tmp_path)
    read(cached, [(0, 10 * PAGE)])
    assert open_in(tmp_path) == before
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        assert read(cached, [(0, fake.size)]) == true(fake, [(0, fake.size)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert cached._folder.writes  # it was for a moment only


def test_names_say_nothing_and_are_for_the_user_alone(tmp_path):
    fake = FakeRanges(PAGE, "secret-name")
    read(Cached(fake, tmp_path, "4MB"), [(0, 10)])
    assert all("secret" not in str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    ours = tmp_path / f"corgipile-{os.geteuid()}"
    assert ours.stat().st_mode & 0o77 == 0
    assert files(tmp_path)[0].stat().st_mode & 0o77 == 0


def test_a_fork_notes_what_it_has_open_itself(tmp_path):
    fake = FakeRanges(30 * PAGE)
    cached = Cached(fake, tmp_path, "8MB")
    read(cached, [(0, PAGE)])
    folder = cached._folder
    child = os.fork()
    if not child:  # as a worker does that is forked amid an epoch
        good = folder._granted == 0 and read(cached, [(PAGE, 9 * PAGE)]) == true(fake, [(PAGE, 9 * PAGE)])
        os._exit(0 if good and folder._granted > 0 and len([*folder.path.glob(".open.*")]) == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    read(cached, [(0, 10 * PAGE)])
    assert fake.fetched == PAGE
    cache_folder.Note(folder.path)  # sweeps what the fork left
    assert len([*folder.path.glob(".open.*")]) <= 2


def test_a_folder_that_was_removed_is_made_anew_by_the_next_opening(tmp_path):
    fake = FakeRanges(20 * PAGE)
    cached = Cached(fake, tmp_path, "8MB")
    read(cached, [(0, PAGE)])
    shutil.rmtree(tmp_path / f"corgipile-{os.geteuid()}")
    with pytest.warns(RuntimeWarning, match="No such file or directory"):
        assert read(cached, [(0, fake.size)]) == true(fake, [(0, fake.size)])
    again = Cached(fake, tmp_path, "8MB")
    read(again, [(0, fake.size)])
    before = fake.fetched
    assert read(again, [(0, fake.size)]) == true(fake, [(0, fake.size)])
    assert fake.fetched == before
