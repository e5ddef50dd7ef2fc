import bz2
import gzip
import locale
import lzma
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile.errors import (
    BadArgument,
    BadSparseRow,
    BadValue,
    CorruptFile,
    MissingFile,
    ParseError,
    UnknownFormat,
)
from corgipile.tables import open as open_table
from corgipile.tables.formats.svmlight import index as svmindex
from corgipile.tables.formats.svmlight import text as svmtext
from corgipile.tables.formats.svmlight.table import SvmlightTable, stream_batches
from corgipile.tables.io.files import File

finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
row = st.tuples(
    st.floats(allow_nan=False, allow_infinity=False),
    st.dictionaries(st.integers(0, 2**31 - 2), finite32, max_size=6),
)


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def spell(rows, base, rng):
    """Write rows with all features of the format: comments, blank lines, qid, CRLF, no last newline."""
    lines = []
    for label, pairs in rows:
        while rng.random() < 0.2:
            lines.append(rng.choice(["", "   ", "# a comment", "\t# 1 2:3"]))
        words = [rng.choice(["", "+"]) + repr(label) if label > 0 else repr(label)]
        if rng.random() < 0.2:
            words.append("qid:7")
        words += [f"{index + base}:{value!r}" for index, value in sorted(pairs.items())]
        lines.append(
            rng.choice(["", " "]) + rng.choice([" ", "\t", "  "]).join(words) + rng.choice(["", " # why", " "])
        )
    return rng.choice(["\n", "\r\n"]).join(lines) + rng.choice(["", "\n"])


def expected_of(rows):
    return pa.table(
        {
            "label": pa.array([label for label, _ in rows], pa.float64()),
            "features_k": pa.array([sorted(pairs) for _, pairs in rows], pa.list_(pa.int32())),
            "features_v": pa.array([[pairs[k] for k in sorted(pairs)] for _, pairs in rows], pa.list_(pa.float32())),
        }
    )


@given(rows=st.lists(row, max_size=20), base=st.integers(0, 1), seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_agrees_with_rows_written(folder, laws, rows, base, seed):
    rng = np.random.default_rng(seed)
    path = write(folder / "law.svm", spell(rows, base, rng))
    table = SvmlightTable(path, zero_based=base == 0)
    laws(table, expected_of(rows), rng)
    assert table.dims == max((max(pairs, default=-1) for _, pairs in rows), default=-1) + 1
    _, batches = stream_batches(path, 3, zero_based=base == 0)
    sizes, parts = [], []
    for batch in batches:
        sizes.append(batch.num_rows)
        parts += batch.to_pylist()
    assert parts == expected_of(rows).to_pylist()
    assert sizes == [min(3, len(rows) - start) for start in range(0, len(rows), 3)]


@given(
    value=st.floats(allow_nan=False, allow_infinity=False),
    form=st.sampled_from(["r", ".17e", ".25f", ".3g", ".30e"]),
)
@settings(max_examples=300, deadline=None)
def test_labels_are_right_to_the_last_bit(value, form):
    text = repr(value) if form == "r" else format(value, form)
    if len(text) > 1000 or float(text) in (float("inf"), float("-inf")):
        return
    _, batch = svmtext.parse_rows(memoryview(text.encode()), 1, 0, svmtext.schema(svmtext.Summary(), 0))
    assert batch.column(0).to_pylist() == [float(text)]


def test_numbers_do_not_depend_on_the_locale():
    text = memoryview(b"0.12345678901234567890123 1:1.5")
    try:
        before = locale.setlocale(locale.LC_NUMERIC)
        locale.setlocale(locale.LC_NUMERIC, "de_DE.UTF-8")
    except locale.Error:
        pytest.skip("no locale with a decimal comma")
    try:
        _, batch = svmtext.parse_rows(text, 1, 0, svmtext.schema(svmtext.Summary(), 0))
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)
    assert batch.column(0).to_pylist() == [0.12345678901234567890123]


def test_manners(tmp_path, manners):
    text = "".join(f"{i % 3} " + " ".join(f"{k}:{i / k}" for k in range(1, i % 7 + 1)) + "\n" for i in range(300))
    table = SvmlightTable(write(tmp_path / "a.svm", text))
    manners(table)
    assert table.cuts(100).tolist() == [0, 100, 200, 300]
    assert table.layout(["label"]) is None
    assert table.schema.metadata == {b"corgipile.dims": b"6", b"corgipile.base": b"1"}


def test_base_is_found_or_given(tmp_path):
    ones, zeros = (
        write(tmp_path / "a.svm", "1 1:5\n"),
        write(tmp_path / "b.svm", "1 1:5\n\n1 qid:3 0:1 1:5\n"),
    )
    assert SvmlightTable(ones).read(0, 1, ["features_k"]).to_pydict() == {"features_k": [[0]]}
    assert SvmlightTable(ones, zero_based=True).read(0, 1, ["features_k"]).to_pydict() == {"features_k": [[1]]}
    assert SvmlightTable(zeros).read(0, 1, ["features_k"]).to_pydict() == {"features_k": [[1]]}
    with pytest.raises(
        BadSparseRow, match=r"b.svm, line 3, column 9: indices must be at least 1 with zero_based=False"
    ):
        SvmlightTable(zeros, zero_based=False)
    joined = open_table([ones, zeros])
    assert joined.read(0, 3).column("features_k").to_pylist() == [[1], [1], [0, 1]]
    assert joined.schema.metadata[b"corgipile.dims"] == b"2"


@pytest.mark.parametrize(
    ("line", "error", "column", "message"),
    [
        ("x 1:2", ParseError, 1, "a line must begin with a number, its label; got 'x'"),
        ("1:2 2:3", ParseError, 1, "its label; got '1:2'"),
        ("1,3 1:2", ParseError, 1, "the label must be one number, got several: '1,3'"),
        ("1 2", ParseError, 3, "a feature must be index:value, got '2'"),
        ("1 a:2", ParseError, 3, "a feature must be index:value, got 'a:2'"),
        ("1 3:", ParseError, 5, "a number must follow the colon, got ''"),
        ("1 3:x", ParseError, 5, "a number must follow the colon, got 'x'"),
        ("1 3:1x", ParseError, 5, "a number must follow the colon, got '1x'"),
        ("1 3:1e", ParseError, 5, "a number must follow the colon, got '1e'"),
        ("1 3:0x10", ParseError, 5, "a number must follow the colon, got '0x10'"),
        ("1 qid:a 3:1", ParseError, 3, "a feature must be index:value, got 'qid:a'"),
        ("1 3:" + "1" * 1001, BadValue, 5, "must be finite"),
        ("nan 3:1", BadValue, 1, "must be finite (features in 32 bits), got 'nan'"),
        ("1 3:NaN", BadValue, 5, "must be finite (features in 32 bits), got 'NaN'"),
        ("1 3:-inf", BadValue, 5, "must be finite (features in 32 bits), got '-inf'"),
        ("1 3:1e39", BadValue, 5, "must be finite (features in 32 bits), got '1e39'"),
        ("1e999 3:1", BadValue, 1, "must be finite (features in 32 bits), got '1e999'"),
        (
            "1 3:1 2:1",
            BadSparseRow,
            7,
            "indices must ascend, got '2:1'",
        ),
        ("1 3:1 3:1", BadSparseRow, 7, "indices must ascend, got '3:1'"),
        ("1 -3:1", BadSparseRow, 3, "indices must be at least 0, got '-3:1'"),
        ("1 2147483648:1", BadSparseRow, 3, "indices must be at most 2147483647"),
        ("1 99999999999999999999999:1", BadSparseRow, 3, "indices must be at most"),
    ],
)
@pytest.mark.parametrize("before", ["", "# first\n\n1 1:1\n"])
def test_wrong_lines_are_told_with_line_and_column(tmp_path, line, error, column, message, before):
    path = write(tmp_path / "bad.svm", f"{before}{line}\n1 1:1\n")
    with pytest.raises(error) as caught:
        open_table(path)
    place = f"bad.svm, line {before.count(chr(10)) + 1}, column {column}: "
    assert place in str(caught.value)
    assert message in str(caught.value)
    assert names_in(tmp_path) == ["bad.svm"]


def test_line_numbers_count_across_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(svmtext.pieces, "__defaults__", (64,))
    text = "1 1:1 2:0.5\n" * 500 + "1 " + " ".join(f"{k}:1" for k in range(1, 200)) + "\n" + "1 1:1\n" * 100
    table = SvmlightTable(write(tmp_path / "a.svm", text))
    assert len(table) == 601
    assert len(table.read(500, 501).column("features_k")[0]) == 199
    with pytest.raises(ParseError, match=r"bad.svm, line 602, column 3"):
        SvmlightTable(write(tmp_path / "bad.svm", text + "1 x"))


def test_index_is_kept_and_rebuilt(tmp_path, monkeypatch):
    path = write(tmp_path / "a.svm", "1 1:1\n2 1:2\n")
    scans = []
    scan = svmindex.scan
    monkeypatch.setattr(svmindex, "scan", lambda *args: scans.append(args) or scan(*args))
    assert len(SvmlightTable(path)) == 2
    assert len(SvmlightTable(path)) == 2
    assert len(scans) == 1
    assert names_in(tmp_path) == ["a.svm", "a.svm.corgipile-index.arrow"]
    write(path, "1 1:1\n2 1:2\n3 1:2\n")
    assert len(SvmlightTable(path)) == 3
    os.utime(path, ns=(1, 1))
    assert len(SvmlightTable(path)) == 3
    assert len(scans) == 3
    write(tmp_path / "a.svm.corgipile-index.arrow", b"ARROW1 nonsense")
    assert len(SvmlightTable(path)) == 3
    assert len(scans) == 4


def test_index_stays_in_memory_where_the_folder_cannot_be_written(tmp_path, monkeypatch):
    path = write(tmp_path / "a.svm", "1 1:1\n2 1:2\n")

    def refuse(self, mode):
        if mode == "wb":
            raise PermissionError(13, "not here")
        return opened(self, mode)

    opened = Path.open
    monkeypatch.setattr(Path, "open", refuse)
    table = SvmlightTable(path)
    assert table.read(1, 2).to_pylist() == [{"label": 2.0, "features_k": [0], "features_v": [2.0]}]
    assert table.read(0, 2, ["label"]).to_pydict() == {"label": [1.0, 2.0]}
    assert names_in(tmp_path) == ["a.svm"]


def test_labels_come_from_the_index(tmp_path, monkeypatch):
    table = SvmlightTable(write(tmp_path / "a.svm", "1 1:1\n2 1:2\n3 1:2\n"))
    reads = []
    read = File.read
    monkeypatch.setattr(File, "read", lambda file, *args: reads.append(file.path) or read(file, *args))
    assert table.read(1, 3, ["label"]).to_pydict() == {"label": [2.0, 3.0]}
    assert table.take(np.array([2, 0]), ["label"]).to_pydict() == {"label": [3.0, 1.0]}
    assert all(path.endswith("index.arrow") for path in reads)
    table.read(1, 3)
    assert reads.count(str(tmp_path / "a.svm")) == 1


def test_text_changed_behind_the_index(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:1\n2 1:2\n3 1:2\n")
    table = SvmlightTable(path)
    write(path, "1 1:1 1:2 #\n  1:2\n")
    with pytest.raises(CorruptFile, match=r"a.svm or its index changed after it was opened; open it again"):
        table.read(0, 3)


@pytest.mark.parametrize(
    ("compress", "name"), [(gzip.compress, "gzip"), (bz2.compress, "bzip2"), (lzma.compress, "xz")]
)
def test_compressed_text_is_streamed_only(tmp_path, compress, name):
    text = b"".join(b"%d 1:%d\n" % (i % 2, i) for i in range(1000))
    path = write(tmp_path / "a.svm.gz", compress(text))
    with pytest.raises(UnknownFormat, match=rf"is compressed \({name}\).*`corgipile convert`"):
        open_table(path)
    schema, batches = stream_batches(path, 300)
    found = list(batches)
    assert [batch.num_rows for batch in found] == [300, 300, 300, 100]
    assert schema.metadata[b"corgipile.dims"] == b"1"
    assert found[3].column("features_v").to_pylist()[-1] == [999.0]
    write(path, compress(text)[:-30])
    with pytest.raises(CorruptFile, match=r"a.svm.gz"):
        stream_batches(path, 300)
    with pytest.raises(BadArgument, match="at least 1, got 0"):
        stream_batches(path, 0)
    with pytest.raises(MissingFile):
        stream_batches(tmp_path / "nowhere")


def test_empty_text(tmp_path, laws):
    table = SvmlightTable(write(tmp_path / "a.svm", "# nothing\n"))
    laws(table, expected_of([]), np.random.default_rng(0))
    assert len(SvmlightTable(write(tmp_path / "b.svm", ""))) == 0


def test_damaged_text_never_crashes(folder, damage, survives):
    text = b"".join(
        b"%d qid:3 " % (i % 2) + b" ".join(b"%d:%.9g" % (k, i / k) for k in range(1, i % 7 + 1)) + b"\r\n"
        for i in range(30)
    )

    @given(broken=damage(text))
    @settings(max_examples=300, deadline=None, derandomize=True)
    def check(broken):
        survives(folder / "broken.svm", broken, "svmlight")

    check()


def test_damaged_index_never_crashes(folder, damage):
    path = write(folder / "kept.svm", "".join(f"{i % 2} 1:{i}\n" for i in range(50)))
    table = SvmlightTable(path)
    whole = table.read(0, 50).to_pylist()
    index = folder / "kept.svm.corgipile-index.arrow"
    data = index.read_bytes()

    @given(broken=damage(data))
    @settings(max_examples=200, deadline=None, derandomize=True)
    def check(broken):
        index.write_bytes(broken)
        try:
            rows = SvmlightTable(path).read(0, 50).to_pylist()
        except CorruptFile:
            return
        assert rows == whole

    check()
