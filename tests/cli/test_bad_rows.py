"""Bad rows in training and evaluation, and columns ignored for a few cells, on the command line."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import corgipile as cp
from corgipile import cli


def test_rows_that_cannot_be_learnt_from_are_skipped_on_request(tmp_path, capsys):
    x, y = np.ones((50, 3), np.float32), np.arange(50) % 2
    x[7, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    pair = f"{tmp_path}/x.npy,{tmp_path}/y.npy"
    assert cli.main(["train", pair, "--epochs", "1"]) == 2
    assert "row 7" in capsys.readouterr().err
    assert cli.main(["train", pair, "--epochs", "1", "--on-bad", "skip"]) == 0
    assert "1 row skipped" in capsys.readouterr().err
    assert cli.main(["train", pair, "--test", pair, "--epochs", "1", "--on-bad", "skip"]) == 0
    assert "1 row of the test table skipped" in capsys.readouterr().err


def test_quiet_hides_no_column_that_is_nearly_numbers(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("a,b,label\n" + "".join(f"{i},{'?' if i == 39 else i},{i % 2}\n" for i in range(40)))
    told = f"corgipile: column 'b' is left out as text, though 39 of its first 40 cells are numbers, but '?' ({path}, "
    for also in ([], ["-q"], ["--json"]):
        assert cli.main(["train", str(path), "--epochs", "1", *also]) == 0
        assert capsys.readouterr().err.count(told) == 1


def test_rows_that_a_model_cannot_take_are_filled_or_left_out_on_request(tmp_path, capsys):
    rows = {"a": [0.5, 1.0] * 20, "label": ["no", "yes"] * 20}
    cp.train(pa.table(rows), epochs=1).save(model := str(tmp_path / "m.safetensors"))
    pq.write_table(pa.table({**rows, "a": [*rows["a"][:39], None]}), path := str(tmp_path / "rows.parquet"))
    assert cli.main(["predict", model, path]) == 2
    assert "null in column 'a'" in capsys.readouterr().err
    assert cli.main(["predict", model, path, "--missing", "1", "--what", "decision"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[-1]) == (40, lines[1])
    assert cli.main(["evaluate", model, path]) == 2
    assert "null in column 'a'" in capsys.readouterr().err
    assert cli.main(["evaluate", model, path, "--on-bad", "skip"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("39 rows")
    assert told.err == "corgipile: 1 row skipped: the model cannot be evaluated on it\n"
    for words, rows_told, skipped in ((["--on-bad", "skip"], 39, 1), (["--missing", "0.5"], 40, 0)):
        assert cli.main(["evaluate", model, path, "--json", *words]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["rows"], found["skipped"]) == (rows_told, skipped)
