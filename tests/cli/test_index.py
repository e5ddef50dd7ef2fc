"""`corgipile index`."""

import json

import pyarrow as pa
import pytest

from corgipile import cli, tables

ONE = bytes.fromhex("0300000000000000b099490e6f6e6501405508")  # the record b"one"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(ONE * 3)
    (tmp_path / "b.svm").write_text("1 1:1\n2 1:2\n")
    return tmp_path


def test_indexes_are_written_and_told(files, capsys):
    assert cli.main(["index", f"{files}/a.tfrecord", f"{files}/b.svm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    size = (files / "b.svm.corgipile-index.arrow").stat().st_size
    assert lines == [
        f"{files}/a.tfrecord.idx: 3 rows, {len('0 19 19 19 38 19 ')} bytes",
        f"{files}/b.svm.corgipile-index.arrow: 2 rows, {size:,} bytes",
    ]
    assert (files / "a.tfrecord.idx").read_text() == "0 19\n19 19\n38 19\n"
    assert tables.open(files / "a.tfrecord").read(1, 2).to_pydict() == {"record": [b"one"]}
    assert sorted(path.name for path in files.iterdir()) == [
        "a.tfrecord", "a.tfrecord.idx", "b.svm", "b.svm.corgipile-index.arrow",
    ]  # fmt: skip
    assert cli.main(["index", "--json", f"{files}/b.svm"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == [{"path": f"{files}/b.svm.corgipile-index.arrow", "rows": 2, "nbytes": size}]


def test_nothing_is_written_for_bad_files(files, capsys):
    (files / "a.tfrecord").write_bytes(ONE + ONE[:-1])
    assert cli.main(["index", f"{files}/a.tfrecord"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "record 1 at byte 19: the file is truncated within the record" in told
    assert 'no index is written; skip bad records with corgipile.open(on_bad="skip") (1 in this file)' in told
    (files / "a.tfrecord").write_text("a text that has another name than it should")
    assert cli.main(["index", f"{files}/a.tfrecord"]) == 2
    assert "a.tfrecord is not a TFRecord file: it begins with b'a text t'" in " ".join(capsys.readouterr().err.split())
    with pa.ipc.new_file(str(files / "c.arrow"), pa.schema([("x", pa.int32())])):
        pass
    assert cli.main(["index", f"{files}/c.arrow"]) == 2
    assert "needs no index" in capsys.readouterr().err
    assert sorted(path.name for path in files.iterdir()) == ["a.tfrecord", "b.svm", "c.arrow"]
