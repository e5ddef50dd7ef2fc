"""WebDataset tables against the package, and against archives written by Python's tarfile."""

import gc
import os
import pickle
import tarfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shards import numbered, table_of, write

import corgipile as cp
from corgipile.errors import BadArgument, BadSchema, BadValue, CorruptFile, MissingFile, UnknownFormat
from corgipile.tables import ConcatTable, WebDatasetTable
from corgipile.tables import open as open_table
from corgipile.tables.io.files import File
from corgipile.tables.io.index_cache import _build, index_path
from corgipile.testing import check_table

FORMS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


@given(
    samples=st.dictionaries(
        st.from_regex(r"(d/)?[a-zé]{1,9}", fullmatch=True),
        st.dictionaries(st.sampled_from(["jpg", "PNG", "seg.png", "cls", "txt", "json"]), st.binary(max_size=700)),
        max_size=12,
    ),
    long=st.booleans(),
    form=st.sampled_from(FORMS[1:]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_agrees_with_what_was_written(folder, laws, samples, long, form, seed):
    samples = {("x" * 120) * long + key: held for key, held in samples.items() if held}
    path = write(
        folder / "law.tar",
        [(f"{key}.{end}", data) for key, held in samples.items() for end, data in held.items()],
        form,
    )
    os.utime(path, ns=(seed, seed))
    columns = list(dict.fromkeys(end.lower() for held in samples.values() for end in held))
    rows = [{end.lower(): data for end, data in held.items()} for held in samples.values()]
    table = WebDatasetTable(path, decode=False, paths=True)
    written = {name: pa.array([row.get(name) for row in rows], pa.binary()) for name in columns}
    laws(table, pa.table({**written, "__key__": pa.array(list(samples), pa.string())}), np.random.default_rng(seed))
    assert table.passed == 0


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the package leaves open files to the garbage collector
def test_agrees_with_the_package(tmp_path):
    wds = pytest.importorskip("webdataset")
    with wds.ShardWriter(f"{tmp_path}/s-%06d.tar", maxcount=40, verbose=0) as writer:
        for i in range(150):
            columns = {"jpg": os.urandom(i), "cls": i % 9, "json": {"i": i}, "caption.txt": f"né {i}"}
            writer.write({"__key__": f"a/{i:04}", **columns})
    pattern = f"{tmp_path}/s-{{000000..000003}}.tar"
    theirs = list(wds.WebDataset(pattern, shardshuffle=False))
    gc.collect()
    table = open_table(pattern, decode=False, paths=True)
    ours = table.read(0, len(table)).to_pylist()
    assert ours == [{name: row[name] for name in table.schema.names} for row in theirs]
    decoded = open_table(pattern)
    assert decoded.schema.field("cls").type == pa.int64()
    assert decoded.read(0, 150, ["cls"]).column(0).to_pylist() == [i % 9 for i in range(150)]


def test_manners(tmp_path, manners):
    for i in range(3):
        write(tmp_path / f"s-{i:03}.tar", numbered(40, 40 * i))
    table = open_table(tmp_path, paths=True)
    assert isinstance(table, ConcatTable)
    check_table(table, table_of(120))
    manners(open_table(tmp_path / "s-001.tar"))
    assert table.layout(["cls"]) is None
    assert open_table(tmp_path / "s-000.tar").cuts(15).tolist() == [0, 15, 30, 40]
    assert table.row_sizes(np.array([119, 3]), ["jpg"]).tolist() == [119 * 37 % 900, 111]
    assert open_table(tmp_path).row_sizes(np.array([3]), ["cls", "jpg", "txt"]).tolist() == [8 + 111 + 5]
    assert table.row_sizes(np.array([3]), ["__key__"]) is None
    jpgs = table_of(120)["jpg"].to_pylist()
    assert table.take_bytes(np.array([119, 0, 41]), "jpg") == [jpgs[119], jpgs[0], jpgs[41]]
    assert cp.convert(tmp_path / "*.tar", tmp_path / "o.arrow") == 120
    assert (
        open_table(tmp_path / "o.arrow").read(0, 120).to_pylist()
        == open_table(f"{tmp_path}/*.tar").read(0, 120).to_pylist()
    )


def test_every_order_gives_every_row_once(tmp_path):
    write(tmp_path / "a.tar", numbered(150))
    expected = table_of(150)
    pairs = sorted(zip(expected["txt"].to_pylist(), expected["jpg"].to_pylist(), strict=True))
    for order in ("riffle", "full", "corgipile", "no_shuffle", "sliding_window", cp.orders.Riffle(balance="cls")):
        with cp.Loader(tmp_path / "a.tar", batch_size=16, order=order, memory="64KB") as loader:
            batches = list(loader)
        found = [pair for batch in batches for pair in zip(batch["txt"], batch["jpg"], strict=True)]
        assert sorted(found) == pairs
        assert all(int(t[3:]) % 7 == c for batch in batches for t, c in zip(batch["txt"], batch["cls"], strict=True))


def test_workers_share_the_rows(tmp_path):
    data = pytest.importorskip("torch.utils.data")
    from corgipile.torch import CorgiPileDataset  # noqa: PLC0415

    write(tmp_path / "a.tar", numbered(150))
    dataset = CorgiPileDataset(tmp_path / "a.tar", batch_size=8)
    batches = list(data.DataLoader(dataset, batch_size=None, num_workers=2))
    assert sorted(text for batch in batches for text in batch["txt"]) == sorted(table_of(150)["txt"].to_pylist())


def test_reading_a_column_reads_no_other(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tar", [*numbered(50), ("z.cls", b" +4\n"), ("z.jpg", bytes(10)), ("z.txt", b"")])
    table = open_table(path)
    monkeypatch.setattr(File, "gather", lambda *_: pytest.fail("the archive was read"))
    assert table.read(49, 51, ["cls"]).to_pydict() == {"cls": [0, 4]}


def test_headers_are_read_and_bodies_are_not(tmp_path, monkeypatch):
    write(tmp_path / "a.tar", [(f"{i}.bin", bytes(200_000)) for i in range(20)])
    sizes = []
    read = File.read
    monkeypatch.setattr(File, "read", lambda file, at, size: sizes.append(size) or read(file, at, size))
    assert len(open_table(tmp_path / "a.tar")) == 20
    assert sum(sizes) < 500_000


def test_missing_members_are_nulls(tmp_path):
    members = [("a.cls", b"1"), ("a.jpg", b"A"), ("b.jpg", b"B"), ("c.cls", b"3"), ("c.txt", b"x")]
    table = open_table(write(tmp_path / "a.tar", members))
    rows = [{"cls": 1, "jpg": b"A", "txt": None}, {"cls": None, "jpg": b"B", "txt": None}]
    rows.append({"cls": 3, "jpg": None, "txt": "x"})
    assert table.read(0, 3).to_pylist() == rows
    assert table.take([2, 2, 0]).to_pylist() == [rows[2], rows[2], rows[0]]
    assert table.row_sizes(np.arange(3), ["jpg"]) is None
    with (
        pytest.raises(BadValue, match="row 1 of column 'cls' is null"),
        cp.Loader(table, batch_size=3, columns=["cls"]) as loader,
    ):
        list(loader)
    with cp.Loader(table, batch_size=3, columns=["jpg"], order="no_shuffle") as loader:
        assert list(next(iter(loader))["jpg"]) == [b"A", b"B", None]


def test_shards_agree_on_columns(tmp_path):
    write(tmp_path / "0.tar", [("a.cls", b"1"), ("a.jpg", b"A")])
    write(tmp_path / "1.tar", [])
    write(tmp_path / "2.tar", [("b.cls", b"cat"), ("b.json", b"{}")])
    table = open_table([tmp_path / f"{i}.tar" for i in range(3)], paths=True)
    assert table.read(0, 2).to_pylist() == [
        {"cls": b"1", "jpg": b"A", "json": None, "__key__": "a"},
        {"cls": b"cat", "jpg": None, "json": "{}", "__key__": "b"},
    ]
    assert pickle.loads(pickle.dumps(table)).read(0, 2).to_pylist() == table.read(0, 2).to_pylist()  # noqa: S301
    assert cp.convert(f"{tmp_path}/*.tar", tmp_path / "o.arrow") == 2
    with pytest.raises(BadSchema, match=r"1.tar has no sample: none of its 0 members has a name such as 0001.jpg"):
        open_table(tmp_path / "1.tar")


def test_what_belongs_to_no_sample_is_passed_over(tmp_path):
    folder = tarfile.TarInfo("d")
    folder.type = tarfile.DIRTYPE
    names = ["README", "d/._a.jpg", ".DS_Store", "__meta__", "__x__/a.jpg"]
    members = [(folder, b""), *((name, b"1") for name in names), ("./d/a.JPG", b"A")]
    table = open_table(write(tmp_path / "a.tar", members), paths=True)
    assert table.read(0, 1).to_pylist() == [{"jpg": b"A", "__key__": "./d/a"}]
    assert len(table) == 1
    assert table.passed == len(names)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tarfile.SYMTYPE, "is a symbolic link.*tar --dereference"),
        (tarfile.LNKTYPE, "is a hard link.*tar --hard-dereference"),
        (tarfile.GNUTYPE_SPARSE, "is a sparse file"),
        (tarfile.FIFOTYPE, "is a pipe"),
    ],
)
def test_members_without_bytes_of_their_own(tmp_path, kind, reason):
    link = tarfile.TarInfo("b.jpg")
    link.type, link.linkname = kind, "a.jpg"
    path = write(tmp_path / "a.tar", [("a.jpg", b"A"), (link, b""), ("c.jpg", b"C")])
    with pytest.raises(BadSchema, match=rf"a.tar, member 'b.jpg' at byte 1024 {reason}"):
        open_table(path)


def test_sparse_files_of_pax(tmp_path):
    sparse = tarfile.TarInfo("b.jpg")
    sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.name": "b.jpg"}
    path = write(tmp_path / "a.tar", [(sparse, b"0\n")], tarfile.PAX_FORMAT)
    with pytest.raises(BadSchema, match="is a sparse file"):
        open_table(path)


def test_samples_that_are_no_samples(tmp_path):
    path = write(tmp_path / "a.tar", [("a.jpg", b""), ("a.JPG", b"")])
    with pytest.raises(
        BadSchema, match=r"member 'a.JPG' at byte 512: sample 'a' must have one member that ends in .jpg, got two"
    ):
        open_table(path)
    path = write(tmp_path / "b.tar", [("a.jpg", b""), ("b.jpg", b""), ("a.cls", b""), ("b.cls", b"")])
    with pytest.raises(BadSchema, match=r"members of sample 'a' must be consecutive; .*--sort=name"):
        open_table(path)
    path = write(
        tmp_path / "c.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.jpg", b"3")]
    )  # a repeated key is another row
    assert open_table(path).read(0, 3).to_pydict() == {"jpg": [b"1", b"2", b"3"]}
    path = write(tmp_path / "d.tar", [("a.txt", b"good"), ("b.txt", b"\xff")])
    with pytest.raises(BadValue, match=r"sample 'b': .txt must be UTF-8, got .*decode=False"):
        open_table(path).read(0, 2)
    assert open_table(path, decode=False).read(0, 2).to_pydict() == {"txt": [b"good", b"\xff"]}


def test_braces_and_packed_archives(tmp_path):
    for i in (8, 9, 10):
        write(tmp_path / f"s-{i:02}.tar", numbered(2, 2 * i))
    assert len(open_table(f"{tmp_path}/s-{{08..10}}.tar")) == 6
    assert len(open_table(f"{tmp_path}/{{s-08,s-10}}.tar")) == 4
    assert cp.convert(f"{tmp_path}/s-{{10..09}}.tar", tmp_path / "o.arrow") == 4
    with pytest.raises(MissingFile, match=r"no file at .*s-11.tar"):
        open_table(f"{tmp_path}/s-{{08..11}}.tar")
    with pytest.raises(BadArgument, match="at most 1000000 files, got 10000000000"):
        open_table("s-{0..9999999999}.tar")
    for name in ("s.tar.gz", "s.tgz"):
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            archive.add(tmp_path / "s-08.tar", "a.jpg")
        for use in (open_table, lambda path: cp.convert(path, tmp_path / "p.arrow")):
            with pytest.raises(UnknownFormat, match=rf"compressed as a whole \(gzip\).*`gunzip .*{name}`"):
                use(tmp_path / name)


def test_truncated_and_damaged_archives(tmp_path):
    path = write(tmp_path / "a.tar", numbered(4))
    good = path.read_bytes()

    def error(data):
        path.write_bytes(data)
        with pytest.raises(CorruptFile, match=r"a\.tar") as caught:
            open_table(path)
        return str(caught.value)

    end = len(good.rstrip(b"\0")) // 512 * 512 + 512
    assert "must begin a header or an end mark" in error(good[:end])
    assert "the archive is truncated within '00003.txt'" in error(good[: end - 512])
    assert "the header has a wrong checksum" in error(good[:300] + b"x" + good[301:])
    assert f"has data after its end mark, at byte {len(good)}" in error(good + good)
    assert "header has a wrong checksum" in error(b"no tar file " * 100)
    assert "truncated" in error(b"")
    path.write_bytes(good)
    table = open_table(path)
    path.write_bytes(good[:2048])
    with pytest.raises(CorruptFile, match="it had 20480 when opened"):
        table.read(0, 4)


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_damage_is_survived(folder, survives, damage, data):
    path = write(folder / "damaged.tar", numbered(12), data.draw(st.sampled_from(FORMS)))
    broken = data.draw(damage(path.read_bytes()))
    path.with_name("damaged.tar.corgipile-index.arrow").unlink(missing_ok=True)
    survives(path, broken, "webdataset")


def test_large_and_odd_headers(tmp_path):
    """Sizes in base 256, prefixed names and global pax headers of other writers are read."""
    member = tarfile.TarInfo("a" * 90 + "/" + "b" * 60 + ".bin")
    path = write(tmp_path / "a.tar", [(member, b"123")], tarfile.USTAR_FORMAT)
    data = bytearray(path.read_bytes())
    data[124:136] = b"\x80" + (3).to_bytes(11, "big")
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    assert open_table(path, paths=True).read(0, 1).to_pylist() == [{"bin": b"123", "__key__": member.name[:-4]}]
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "né"}) as archive:
        archive.addfile(tarfile.TarInfo("é" * 80 + ".cls"))
    assert open_table(path, paths=True).read(0, 1).to_pylist() == [{"cls": b"", "__key__": "é" * 80}]


def test_folders_that_cannot_be_written_need_no_index(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tar", numbered(5))
    monkeypatch.setattr(
        "corgipile.tables.io.index_cache.replacing", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "no"))
    )
    assert len(open_table(path)) == 5
    with pytest.raises(BadArgument, match="make its folder writable"):
        next(cp.tables.opening.write_indexes(path))


def test_training_says_what_it_needs(tmp_path):
    path = write(tmp_path / "a.tar", numbered(5))
    with pytest.raises(BadSchema, match="no column of numbers to train on"):
        cp.train(path, label="cls")


def test_an_ending_for_each_member_is_refused_before_its_index_is_built(tmp_path):
    path = write(tmp_path / "a.tar", [(f"{i}.k{i}", b"") for i in range(1100)])
    with pytest.raises(BadSchema, match="must have the same kinds of members, got 1100 endings in 1100 members"):
        open_table(path)


@pytest.mark.parametrize(("name", "value"), [("size bin", 1 << 62), ("start bin", 1 << 62), ("size bin", 1 << 40)])
def test_an_index_that_lies_is_damage(tmp_path, name, value):
    path = write(tmp_path / "a.tar", [(f"{i}.bin", b"abc") for i in range(4)])
    open_table(path)
    place = index_path(File(str(path)))
    with pa.ipc.open_file(pa.BufferReader((tmp_path / place).read_bytes())) as reader:
        rows, (_, stated) = reader.read_all(), reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
    at = rows.schema.get_field_index(name)
    rows = rows.set_column(at, rows.schema.field(at), pa.array([value] * 4)).combine_chunks()
    facts = {key: dict(stated)[key.encode()].decode() for key in ("version", "size", "mtime_ns", "sample")}
    with open(place, "wb") as sink:  # noqa: PTH123
        _build(sink, facts, rows.schema, lambda numbers: numbers.update(passed=0) or iter(rows.to_batches()))
    with pytest.raises(CorruptFile, match="are needed; the file has"):
        open_table(path).read(0, 4)
