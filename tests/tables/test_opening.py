import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from corgipile import tables
from corgipile.errors import BadArgument, BadSchema, MissingFile, UnknownFormat
from corgipile.tables import ArrowFile, ConcatTable, MemoryTable, NumpyTable, ParquetTable
from corgipile.tables import open as open_table
from corgipile.tables.formats.svmlight.table import SvmlightTable

ROWS = pa.table({"label": [0, 1, 1]})


def arrow(path, rows=ROWS):
    with pa.ipc.new_file(path, rows.schema) as writer:
        writer.write_table(rows)
    return path


def test_format_is_told_by_first_bytes_whatever_the_name(tmp_path):
    arrow(tmp_path / "a.data")
    pyarrow.feather.write_feather(ROWS, tmp_path / "f.data")
    pq.write_table(ROWS, tmp_path / "p.data")
    with (tmp_path / "n.data").open("wb") as stream:
        np.save(stream, np.ones((3, 2)))
    (tmp_path / "s.data").write_text("# a comment\n\n1 2:1\n")
    kinds = {name: type(open_table(tmp_path / f"{name}.data")) for name in "afpns"}
    assert kinds == {"a": ArrowFile, "f": ArrowFile, "p": ParquetTable, "n": NumpyTable, "s": SvmlightTable}


def test_sources_of_all_kinds(tmp_path, monkeypatch):
    for name in ("b.arrow", "a.arrow", "c.feather"):
        arrow(tmp_path / name, pa.table({"name": [name]}))
    (tmp_path / "README.txt").write_text("no table")
    names = ["a.arrow", "b.arrow", "c.feather"]

    def seen(source):
        table = open_table(source)
        return table.read(0, len(table)).column(0).to_pylist()

    assert seen(str(tmp_path / "a.arrow")) == seen(tmp_path / "a.arrow") == names[:1]
    assert seen(tmp_path) == names
    assert seen(str(tmp_path / "*.arrow")) == names[:2]
    assert seen([tmp_path / "c.feather", str(tmp_path / "*.arrow")]) == ["c.feather", *names[:2]]
    assert seen(pa.table({"name": ["memory"]})) == ["memory"]
    assert seen(pa.record_batch({"name": ["batch"]})) == ["batch"]
    assert seen([MemoryTable(pa.table({"name": ["memory"]})), tmp_path / "a.arrow"]) == ["memory", "a.arrow"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert seen("~/a.arrow") == seen("~/a*.arrow") == names[:1]
    monkeypatch.chdir(tmp_path)
    assert seen("a.arrow") == names[:1]
    (tmp_path / "[a].arrow").write_bytes((tmp_path / "a.arrow").read_bytes())
    assert seen("[a].arrow") == names[:1]


def test_a_table_passes_through():
    table = MemoryTable(ROWS)
    assert open_table(table) is table


def test_index_files_are_no_tables(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n")
    open_table(tmp_path / "a.svm")
    assert len(list(tmp_path.iterdir())) == 2
    assert isinstance(open_table(tmp_path), SvmlightTable)
    assert isinstance(open_table(f"{tmp_path}/*"), SvmlightTable)


def test_labels_go_with_features(tmp_path):
    for i in range(2):
        np.save(tmp_path / f"x{i}.npy", np.full((3, 2), i))
        np.save(tmp_path / f"y{i}.npy", np.full(3, i))
    one = open_table(tmp_path / "x0.npy", label=tmp_path / "y0.npy")
    assert one.schema.names == ["features", "label"]
    labels = [tmp_path / "y0.npy", tmp_path / "y1.npy"]
    for source in (tmp_path, f"{tmp_path}/*.npy", [tmp_path / "x0.npy", tmp_path / "x1.npy"]):
        table = open_table(source, label=labels)
        assert isinstance(table, ConcatTable)
        assert table.read(0, 6).column("label").to_pylist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(BadArgument, match="label must have one file for each of 1 tables, got 2"):
        open_table(tmp_path / "x0.npy", label=labels)


def test_nothing_there(tmp_path):
    with pytest.raises(MissingFile, match=r"no file at .*nowhere.arrow"):
        open_table(tmp_path / "nowhere.arrow")
    with pytest.raises(MissingFile, match=r"no file matches '.*\*.arrow'"):
        open_table(f"{tmp_path}/*.arrow")
    with pytest.raises(MissingFile, match=r"folder .* has no file ending in .*\.arrow, .feather"):
        open_table(tmp_path)


def test_unknown_formats(tmp_path):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.txt", "text")
    for data, name, message in [
        (
            b"\x89PNG\r\n\x1a\n",
            "a.png",
            r"a.png is of no known format \(Arrow, Parquet, .npy, TFRecord, tar, or text: S",
        ),
        (
            b"alice\nbob\n",
            "a",
            r"as text: .*a, line 1, column 1: a line must begin with.*; as CSV: .*may not be CSV",
        ),
        (sink.getvalue(), "a.zip", r"is a zip archive with 'a.txt' in it, which is not an array"),
        (b"\x7fELF\0\n1,2\n3,4,5\n", "a.bin", r"begins with b'\\x7fELF[^']*'$"),
        (b"word\n1,2\n3,4,5\n", "a.txt", r"as text: .*a.txt, line 1, column 1: a line must begin with a number"),
        (struct.pack("<Q", 40) + b'{"coef":' + bytes(40), "m", "as a model in the safetensors format does$"),
        (b"", "a", r"a is empty"),
        (b"hello", "a.arrow", "begins with b'hello'; the arrow format must begin with b'ARROW1'"),
        (b"hello", "a.parquet", "begins with b'hello'; the parquet format must begin with b'PAR1'"),
        (b"", "a.parquet", "a.parquet is empty; the parquet format must begin with b'PAR1'"),
        (b"", "a.npy", r"a.npy is empty; the numpy format must begin with b'\\x93NUMPY'"),
        (b"hello", "a.npy", r"begins with b'hello'; the numpy format must begin with b'\\x93NUMPY'"),
        (b"\x28\xb5\x2f\xfd123", "a.zst", r"is compressed \(zstd\)"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UnknownFormat, match=message):
            open_table(tmp_path / name)


def test_a_format_given_is_believed(tmp_path):
    path = arrow(tmp_path / "a.parquet")
    assert isinstance(open_table(path), ArrowFile)
    with pytest.raises(UnknownFormat, match="is not a Parquet file"):
        open_table(path, format="parquet")
    (tmp_path / "empty").touch()
    assert len(open_table(tmp_path / "empty", format="svmlight")) == 0


def test_bad_arguments(tmp_path):
    path = arrow(tmp_path / "a.arrow")
    hub = type("Dataset", (), {"save_to_disk": lambda self, path: None})()  # like Hugging Face datasets
    for source, options, message in [
        (
            path,
            {"format": "excel"},
            "format must be one of .*arrow, arrows, .*csv, .*numpy, .*got 'excel'",
        ),
        (path, {"label": path}, "0 tables|label does not apply"),
        (path, {"label": "y.npy"}, r"label does not apply to .*a.arrow, whose format is arrow"),
        (path, {"zero_based": True}, r"zero_based does not apply to .*a.arrow"),
        (path, {"zero_based": "yes"}, "zero_based must be True, False or 'auto', got 'yes'"),
        (ROWS, {"label": "y.npy"}, "label applies only to files, not to Table"),
        ([], {}, "source must be a list of at least one table"),
        (42, {}, "source must be a path, a pyarrow table, a data frame, an array, .*, got int"),
        (hub, {}, "Dataset must be a dataset with rows in Arrow; open the folder that its save_to_disk writes"),
    ]:
        with pytest.raises(BadArgument, match=message):
            open_table(source, **options)


def test_mixed_formats_must_agree(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(BadSchema, match="has no column 'label'"):
        open_table([arrow(tmp_path / "a.arrow"), tmp_path / "x.npy"])


def test_public_names_are_sorted_and_there():
    assert list(tables.__all__) == sorted(tables.__all__)
    assert all(hasattr(tables, name) for name in tables.__all__)
    assert Path(tables.__file__).parent.name == "tables"


def test_a_map_style_dataset_is_sent_to_the_sampler():
    class Rows:
        def __len__(self):
            return 10

        def __getitem__(self, row):
            return row

    with pytest.raises(BadArgument, match=r"got Rows; for a dataset of rows: DataLoader\(rows, batch_sampler=Batch"):
        tables.open(Rows())
    with pytest.raises(BadArgument, match=r"got object$"):
        tables.open(object())
