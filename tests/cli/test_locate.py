"""`corgipile locate`."""

import json

import numpy as np
import pyarrow as pa
import pytest

import corgipile as cp
from corgipile import cli


@pytest.fixture
def table(tmp_path):
    cp.convert(pa.table({"row": np.arange(500), "label": np.arange(500) // 250}), tmp_path / "t.parquet")
    return str(tmp_path / "t.parquet")


def run(capsys, *words):
    code = cli.main(["locate", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_steps_and_rows_of_a_state(table, tmp_path, capsys):
    loaders = [cp.Loader(table, batch_size=16, seed=4, rank=rank, world=3) for rank in range(3)]
    (tmp_path / "state.json").write_text(json.dumps(loaders[1].state_dict()))
    state = ("--state", str(tmp_path / "state.json"))
    batches = [[batch["row"].tolist() for batch in loader] for loader in loaders]
    code, out, _ = run(capsys, table, *state, "--step", "7", "--rank", "2")
    assert (code, out) == (0, f"epoch 0, step 7, rank 2: {' '.join(map(str, batches[2][7]))}\n")
    told = json.loads(run(capsys, table, *state, "--step", "0", "--json")[1])
    assert told == {"epoch": 0, "step": 0, "ranks": [{"rank": rank, "rows": batches[rank][0]} for rank in range(3)]}
    row = batches[1][4][9]
    assert run(capsys, table, *state, "--row", str(row))[1] == f"row {row}: epoch 0, step 4, rank 1, place 9\n"
    assert run(capsys, table, *state, "--row", str(row), "--rank", "0")[1] == f"row {row}: not in epoch 0, rank 0\n"
    visits = json.loads(run(capsys, table, *state, "--row", str(row), "--epoch", "3", "--json")[1])["visits"]
    assert [visit["row"] for visit in visits] == [row]
    assert visits[0]["epoch"] == 3


def test_what_a_state_leaves_out_is_said(table, tmp_path, capsys):
    plain = [batch["row"].tolist() for batch in cp.Loader(table, batch_size=16, seed=4)]
    row = plain[7][3]
    loader = cp.Loader(table, batch_size=16, seed=4, skip=[(0, 2), (1, 5), row])
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    state = ("--state", str(tmp_path / "state.json"))
    said = "skipped by the state: "
    assert run(capsys, table, *state, "--step", "2")[1].endswith(f"\n{said}step 2\n")
    assert run(capsys, table, *state, "--step", "7")[1].endswith(f"\n{said}row {row}\n")
    assert run(capsys, table, *state, "--row", str(row))[1].endswith(f"\n{said}row {row}\n")
    assert said not in run(capsys, table, *state, "--step", "5")[1]
    assert said not in run(capsys, table, *state, "--row", str(plain[6][0]))[1]
    told = json.loads(run(capsys, table, *state, "--step", "5", "--epoch", "1", "--json")[1])
    assert told["skipped"] == [[1, 5]]


def test_a_loader_that_is_told(table, capsys):
    loader = cp.Loader(table, batch_size=20, order="full", seed=9, memory="1MB")
    loader.set_epoch(2)
    words = ("--order", "full", "--batch-size", "20", "--seed", "9", "--memory", "1MB", "--epoch", "2", "--step", "1")
    rows = [batch["row"].tolist() for batch in loader][1]
    assert json.loads(run(capsys, table, *words, "--json")[1])["ranks"] == [{"rank": 0, "rows": rows}]


def test_bad_words(table, tmp_path, capsys):
    other = '{"version": 1, "table": "x", "epoch": 0, "segments": []}'
    less = '{"version": 1, "table": "x"}'
    for name, text in (("list.json", "[]"), ("no.json", "{"), ("less.json", less), ("other.json", other)):
        (tmp_path / name).write_text(text)
    cases = [
        ((), "one of --step and --row"),
        (("--step", "1", "--row", "2"), "one of --step and --row"),
        (("--step", "2"), "below 2, the steps of epoch 0"),
        (("--step", "0", "--rank", "1"), "rank must be below 1"),
        (("--row", "500"), "row must be from 0 to 499"),
        (("--step", "0", "--state", str(tmp_path / "missing.json")), "missing.json"),
        (("--step", "0", "--state", str(tmp_path / "list.json")), "a state must be a dictionary"),
        (("--step", "0", "--state", str(tmp_path / "no.json")), "must be a JSON state"),
        (("--step", "0", "--state", str(tmp_path / "less.json")), "a state must have 'epoch', 'segments'"),
        (("--step", "0", "--state", str(tmp_path / "other.json")), "another table"),
        (
            ("--step", "0", "--state", str(tmp_path / "other.json"), "--seed", "3"),
            "--seed must be omitted",
        ),
    ]
    for words, message in cases:
        code, out, err = run(capsys, table, *words)
        assert code != 0, words
        assert (out, message in err) == ("", True), (words, err)
