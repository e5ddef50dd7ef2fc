"""Conversion of every kind of source to Arrow IPC files."""

import bz2
import gzip
import lzma
import struct

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgipile import tables
from corgipile.conversion import convert
from corgipile.errors import (
    BadArgument,
    BadSchema,
    BadValue,
    CorgiPileError,
    CorruptFile,
    MissingColumn,
    MissingFile,
    ParseError,
    TableError,
    UnknownFormat,
)

ROWS = 500
TABLE = pa.table(
    {
        "x": np.arange(ROWS) / 4,
        "y": np.arange(ROWS) % 7,
        "word": [f"w{i % 5}" * (i % 3) for i in range(ROWS)],
        "class": (np.arange(ROWS) % 3).astype(np.int32),
    }
)
OPENERS = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def save_stream(table, path):
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=33)


def save_file(table, path):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=33)


def save_parquet(table, path):
    pq.write_table(table, path, row_group_size=200)


def save_csv(table, path):
    pyarrow.csv.write_csv(table, path)


SAVERS = {"a.arrows": save_stream, "a.arrow": save_file, "a.parquet": save_parquet, "a.csv": save_csv}


def written(path):
    table = tables.open(path)
    return pa.Table.from_batches([table.read(0, len(table))])


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.arrow"


@pytest.mark.parametrize("name", SAVERS)
def test_every_format_gives_the_same_rows(tmp_path, out, name):
    SAVERS[name](TABLE, tmp_path / name)
    told = []
    assert convert(tmp_path / name, out, record_batch=64, progress=lambda *now: told.append(now)) == ROWS
    assert written(out).to_pydict() == TABLE.to_pydict()
    assert told[-1][0] == ROWS
    assert told[-1][1] in (ROWS, None)
    assert pa.ipc.open_file(out).num_record_batches == 8


def test_tables_in_memory_and_opened_ones(out):
    assert convert(TABLE, out) == ROWS
    assert convert(tables.open(TABLE), out) == ROWS
    assert written(out).to_pydict() == TABLE.to_pydict()


def test_lists_and_globs_are_one_table(tmp_path, out):
    save_stream(TABLE.slice(0, 200), tmp_path / "1.part")
    save_parquet(TABLE.slice(200, 200), tmp_path / "2.part")
    save_csv(TABLE.slice(400), tmp_path / "3.csv")
    for source in ([tmp_path / "1.part", tmp_path / "2.part", TABLE.slice(400)], str(tmp_path / "[12].part")):
        convert(source, out)
        assert written(out).to_pydict() == TABLE.slice(0, len(written(out))).to_pydict()
    with pytest.raises(BadSchema, match="'class' must have type"):
        convert([tmp_path / "1.part", tmp_path / "3.csv"], out)


def test_packing_makes_one_list_of_features(out):
    convert(TABLE, out, label="class", pack=True)
    rows = written(out)
    assert rows.column_names == ["features", "word", "label"]
    assert rows.schema.field("features").type.list_size == 2
    flat = rows["features"].combine_chunks().flatten().to_numpy().reshape(-1, 2)
    assert np.array_equal(flat, np.stack([TABLE["x"], TABLE["y"]], axis=1).astype(np.float32))
    assert rows["label"].to_pylist() == TABLE["class"].to_pylist()


def test_columns_are_chosen_and_the_label_stays(out):
    convert(TABLE, out, columns=["y"], label=-1)
    assert written(out).column_names == ["y", "label"]


@pytest.mark.parametrize("suffix", OPENERS)
@pytest.mark.parametrize("mark", ["\t", ",", " "])
def test_numbers_without_a_header(tmp_path, out, suffix, mark):
    path = tmp_path / f"a.txt{suffix}"
    with OPENERS[suffix](path, "wb") as file:
        file.write("".join(f"{i}{mark}{i / 2}{mark}{i % 2}\n" for i in range(50)).encode())
    convert(path, out, label=-1, pack=True)
    rows = written(out)
    assert rows["label"].to_pylist() == [i % 2 for i in range(50)]
    assert rows["features"].to_pylist() == [[i, i / 2] for i in range(50)]


def test_a_header_of_numbers_can_be_announced(tmp_path, out):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    convert(tmp_path / "a.csv", out, header=True)
    assert written(out).to_pydict() == {"1": [3], "2": [4]}
    convert(tmp_path / "a.csv", out, header=False)
    assert len(written(out)) == 2


def test_whole_numbers_may_turn_into_fractions_later(tmp_path, out):
    (tmp_path / "a.csv").write_text("x,label\n" + "1,0\n" * 400_000 + "1.5,1\n")
    assert convert(tmp_path / "a.csv", out, pack=True) == 400_001
    assert written(out)["features"][-1].as_py() == [1.5]
    with pytest.raises(ParseError, match=r"a\.csv: .*1\.5"):
        convert(tmp_path / "a.csv", out)


@pytest.mark.parametrize("suffix", OPENERS)
def test_svmlight_text_is_streamed(tmp_path, out, suffix):
    path = tmp_path / f"a9a{suffix}"
    with OPENERS[suffix](path, "wb") as file:
        file.write(b"+1 1:0.5 4:2 # first\n-1 2:1\n")
    assert convert(path, out) == 2
    rows = tables.open(out).read(0, 2)
    assert rows["features_k"].to_pylist() == [[0, 3], [1]]
    assert tables.open(out).schema.metadata[b"corgipile.dims"] == b"4"


def test_several_texts_share_a_dimension_and_a_base(tmp_path, out):
    (tmp_path / "1.svm").write_text("1 1:1\n")
    (tmp_path / "2.svm").write_text("1 9:1\n")
    convert([tmp_path / "1.svm", tmp_path / "2.svm"], out)
    assert tables.open(out).schema.metadata[b"corgipile.dims"] == b"9"
    (tmp_path / "2.svm").write_text("1 0:1 9:1\n")
    with pytest.raises(BadArgument, match="zero_based"):
        convert([tmp_path / "1.svm", tmp_path / "2.svm"], out)
    convert([tmp_path / "1.svm", tmp_path / "2.svm"], out, zero_based=True)
    assert written(out)["features_k"].to_pylist() == [[1], [0, 9]]


def idx(*shape, values):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


def test_idx_images_find_their_labels(tmp_path, out):
    (tmp_path / "t-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(3, 2, 2, values=range(12))))
    (tmp_path / "t-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(3, values=[7, 8, 9])))
    assert convert(tmp_path / "t-images-idx3-ubyte.gz", out) == 3
    assert written(out).to_pydict() == {
        "features": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]],
        "label": [7, 8, 9],
    }
    (tmp_path / "x").write_bytes(idx(3, 4, values=range(12)))
    convert(tmp_path / "x", out)
    assert written(out).column_names == ["features"]
    convert(tmp_path / "x", out, label=str(tmp_path / "t-labels-idx1-ubyte.gz"))
    assert written(out)["label"].to_pylist() == [7, 8, 9]


def test_bad_idx_files(tmp_path, out):
    bad = {"head": b"\0\0\x0d\1\0\0\0\1\0", "short": b"\0\0\x08\3\0", "cut": idx(3, 2, values=range(5))}
    for name, data in bad.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CorruptFile, match=name):
            convert(tmp_path / name, out)
    (tmp_path / "x").write_bytes(idx(3, 1, values=range(3)))
    (tmp_path / "l").write_bytes(idx(2, values=range(2)))
    with pytest.raises(CorruptFile, match="3 rows"):
        convert(tmp_path / "x", out, label=str(tmp_path / "l"))
    with pytest.raises(MissingFile, match="labels"):
        convert(tmp_path / "x", out, label="nowhere")


def test_npy_features_with_labels_apart(tmp_path, out):
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    np.save(tmp_path / "y.npy", np.array([1, 0, 1]))
    convert(tmp_path / "x.npy", out, label=str(tmp_path / "y.npy"))
    assert written(out).to_pydict() == {"features": [[0, 1], [2, 3], [4, 5]], "label": [1, 0, 1]}


def test_the_source_is_not_overwritten(tmp_path):
    path = tmp_path / "a.arrow"
    save_file(TABLE, path)
    before = path.read_bytes()
    (tmp_path / "link").symlink_to(path)
    for out in (path, tmp_path / "link"):
        with pytest.raises(BadArgument, match="give another"):
            convert(path, out)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["a.arrows", "a.parquet", "a.csv.gz"])
def test_truncated_sources_leave_nothing_behind(tmp_path, out, name):
    if name == "a.csv.gz":
        save_csv(TABLE, tmp_path / "plain")
        (tmp_path / name).write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
        (tmp_path / "plain").unlink()
    else:
        SAVERS[name](TABLE, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TableError, match=name):
        convert(tmp_path / name, out)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_bad_requests(tmp_path, out):
    (tmp_path / "gap.csv").write_text("x,label\n1,0\n,1\n")
    (tmp_path / "word.csv").write_text("x,label\n1,0\noops,1\n")
    (tmp_path / "ragged.csv").write_text("x,label\n1,0\n1,2,3\n")
    requests = [
        (BadValue, "row 1", tmp_path / "gap.csv", {"pack": True}),
        (ParseError, "Row #3.*'oops'", tmp_path / "word.csv", {"pack": True}),
        (ParseError, "row 3 must have 2 columns", tmp_path / "ragged.csv", {}),
        (MissingColumn, "no column 'z'", TABLE, {"label": "z"}),
        (MissingColumn, "column position below 4, got 4", TABLE, {"label": 4}),
        (MissingColumn, "no column 'z'", TABLE, {"columns": ["z"]}),
        (
            BadSchema,
            "another column",
            TABLE.rename_columns(["label", "y", "word", "class"]),
            {"label": "class"},
        ),
        (BadSchema, "pack needs a numeric column", TABLE.select(["word"]), {"pack": True}),
        (BadSchema, "pack needs the name", TABLE.rename_columns(["x", "y", "features", "label"]), {"pack": True}),
        (MissingFile, "no file", tmp_path / "absent", {}),
        (MissingFile, "no file matches", str(tmp_path / "*.absent"), {}),
        (BadArgument, "empty", [], {}),
        (BadArgument, "int", 7, {}),
    ]
    for error, message, source, options in requests:
        with pytest.raises(error, match=message):
            convert(source, out, **options)
    assert not out.exists()


def test_memory_stays_small(tmp_path, out):
    rows = pa.table({"x": np.zeros(8_000_000)})
    save_parquet(rows, tmp_path / "a.parquet")
    del rows
    before = pa.total_allocated_bytes()
    seen = []
    convert(tmp_path / "a.parquet", out, progress=lambda *_: seen.append(pa.total_allocated_bytes()))
    assert max(seen) - before < 24 << 20


def fuzz_seeds():
    table = pa.table({"x": [1.5, 2.5, None], "w": ["a", None, "ccc"], "l": pa.array([[1], [], [2, 3]])})
    table = table.append_column("d", pa.array(["u", "v", "u"]).dictionary_encode())
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    parquet = pa.BufferOutputStream()
    pq.write_table(table, parquet)
    return [
        stream.getvalue().to_pybytes(),
        parquet.getvalue().to_pybytes(),
        gzip.compress(b"x,y,label\n1,2,0\n3,4,1\n"),
        b"x\ty\n1\t2\n3\t4\n",
        b"1 1:0.5 3:2\n-1 2:1\n",
        idx(3, 2, 2, values=range(12)),
    ]


@given(
    st.sampled_from(fuzz_seeds()),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=6),
    st.floats(0, 1),
)
@settings(max_examples=200, deadline=None)
def test_mutated_sources_give_rows_or_our_errors(tmp_path_factory, data, changes, cut):
    """No input may crash the process, or leave a file behind."""
    mutated = bytearray(data)
    for place, byte in changes:
        mutated[int(place * (len(mutated) - 1))] = byte
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "source").write_bytes(mutated[: max(1, round(len(mutated) * (0.2 + cut)))])
    try:
        convert(folder / "source", folder / "out.arrow")
        tables.open(folder / "out.arrow")
    except CorgiPileError:
        assert [entry.name for entry in folder.iterdir()] == ["source"]


def test_what_is_said_of_text_is_refused_of_other_sources(tmp_path):
    """A header or a base that no file is read by would be ignored without a word."""
    out, rows = tmp_path / "out.arrow", pa.table({"x": [1.0, 2.0], "label": [0, 1]})
    pq.write_table(rows, tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("x,label\n1.5,0\n")
    (tmp_path / "a.svm").write_text("1 1:0.5\n0 2:1\n")
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "a.svm").write_text("1 1:0.5\n0 2:1\n")
    for source in (rows, tmp_path / "a.parquet", tmp_path / "a.svm", [rows, tmp_path / "a.parquet"]):
        for header in (True, False):
            with pytest.raises(BadArgument, match=f"header is for CSV text, got {header}"):
                convert(source, out, header=header)
    for source in (rows, tmp_path / "a.parquet", tmp_path / "a.csv", tmp_path / "part"):
        with pytest.raises(BadArgument, match="zero_based is for files of SVMlight text, got False"):
            convert(source, out, zero_based=False)
    assert convert([tmp_path / "a.csv", tmp_path / "a.parquet"], out, header=True) == 3
    for name in ("header", "zero_based"):
        with pytest.raises(BadArgument, match=f"{name} must be True or False, got 'yes'"):
            convert(tmp_path / "a.csv", out, **{name: "yes"})


def test_idx_labels_are_a_path(tmp_path, out):
    (tmp_path / "x").write_bytes(idx(3, 4, values=range(12)))
    with pytest.raises(BadArgument, match="label must be the path of the labels for IDX images, got 3"):
        convert(tmp_path / "x", out, label=3)


def test_columns_are_a_list_and_pack_yes_or_no(out):
    for wrong in ({"columns": "x"}, {"pack": "x"}):
        with pytest.raises(BadArgument, match="got 'x'"):
            convert(TABLE, out, **wrong)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_text_is_said_to_be_empty(tmp_path, out, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UnknownFormat, match=r"a.csv must have at least one line to be CSV"):
        convert(tmp_path / "a.csv", out)


def test_a_folder_of_text_and_other_tables_is_refused(tmp_path):
    rows = pa.table({"x": [1.0, 2.0], "label": [0, 1]})
    folder = tmp_path / "mixed"
    folder.mkdir()
    pa.csv.write_csv(rows, folder / "a.csv")
    (folder / "README.md").write_text("rows")
    assert convert(folder, tmp_path / "a.arrow") == 2
    pq.write_table(rows, folder / "b.parquet")
    with pytest.raises(UnknownFormat, match=r"a.csv \(csv\), b.parquet \(parquet\)|b.parquet \(parquet\), a.csv"):
        convert(folder, tmp_path / "b.arrow")
    assert not (tmp_path / "b.arrow").exists()


def test_parts_that_differ_are_one_table(tmp_path):
    parts = [
        pa.table({"x": pa.array([], pa.null()), "y": pa.array([], pa.null())}),
        pa.table({"x": pa.array([0.5], pa.float32()), "y": [1]}),
        pa.table({"y": [2], "x": [0.1]}),
        pa.table({"x": pa.nulls(1), "y": [3]}),
    ]
    (tmp_path / "in").mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, tmp_path / "in" / f"{number}.parquet")
    for source in (tmp_path / "in", f"{tmp_path}/in/*.parquet", sorted((tmp_path / "in").iterdir())):
        convert(source, tmp_path / "out.arrow", overwrite=True)
        found = tables.open(tmp_path / "out.arrow")
        assert found.read(0, 3).to_pydict() == {"x": [0.5, 0.1, None], "y": [1, 2, 3]}
    pq.write_table(pa.table({"x": ["a"], "y": [4]}), tmp_path / "in" / "4.parquet")
    with pytest.raises(BadSchema, match=r"column 'x' is string; in .* it is double: rewrite one of them"):
        convert(f"{tmp_path}/in/*.parquet", tmp_path / "out.arrow", overwrite=True)
