"""The notebook magic in IPython without a kernel."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("IPython")
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

TRAIN = "SELECT * FROM 't.parquet' TRAIN BY logistic WITH epochs = 2, learning_rate = :rate INTO m"


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Return an IPython shell in a folder with a table; running a cell returns its result or raises its error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    rows = np.random.default_rng(0).normal(size=(1000, 2))
    pq.write_table(pa.table({"a": rows[:, 0], "b": rows[:, 1], "label": rows[:, 0] > rows[:, 1]}), "t.parquet")
    shell = InteractiveShell()
    shell.history_manager.enabled = False

    def run(cell):
        done = shell.run_cell(cell)
        done.raise_error()
        return done.result

    run("%load_ext corgipile.sql")
    yield run
    shell.history_manager.end_session()


def test_a_cell_answers_a_table_that_is_shown(notebook):
    notebook("import numpy as np; rate = np.float64(0.1)")
    epochs = notebook(f"%%corgipile\n-- a remark\n{TRAIN};")
    assert epochs.columns[:2] == ["epoch", "loss"]
    assert epochs.shape == (2, 9)
    assert "<td" in epochs._repr_html_()
    assert "(2 rows)" in repr(epochs)
    assert re.match(r"epoch +loss", repr(epochs))
    assert list(epochs.df()["rows"]) == [1000, 1000]
    notebook("%%corgipile predicted <<\nSELECT * FROM 't.parquet' PREDICT BY m")
    assert notebook("len(predicted)") == 1000
    assert notebook("float(np.mean(predicted['label'].to_numpy() == predicted['prediction'].to_numpy()))") > 0.9


def test_a_line_is_a_value(notebook):
    notebook("least = 998")
    assert notebook("%corgipile SELECT count(*) AS n FROM range(1000) WHERE range >= :least")["n"].to_pylist() == [2]
    notebook("one = %corgipile SELECT 'it''s --not an option' AS text")
    assert notebook("one['text'].to_pylist()") == ["it's --not an option"]
    notebook("%corgipile two << SELECT 2 AS n")
    assert notebook("two['n'].to_pylist()") == [2]
    assert notebook("%corgipile CREATE TABLE t (a int)") is None


def test_data_frames_are_tables(notebook):
    notebook("import pandas as pd; flights = pd.DataFrame({'x': range(100), 'late': [0, 1] * 50})")
    assert len(notebook("%corgipile SELECT * FROM flights TRAIN BY svm WITH epochs = 3")) == 3
    notebook("flights = flights[:7]")
    assert notebook("%corgipile SELECT count(*) AS n FROM flights")["n"].to_pylist() == [7]
    notebook("%corgipile flights << SELECT 1 AS one")
    assert notebook("%corgipile SELECT * FROM flights").columns == ["one"]


def test_databases_are_kept_until_others_are_asked_for(notebook):
    notebook("rate = 0.1")
    notebook(f"%%corgipile --db a.duckdb\n{TRAIN}")
    assert len(notebook("%corgipile SHOW MODELS")) == 1
    assert len(notebook("%corgipile --db=:memory: SHOW MODELS")) == 0
    assert len(notebook("%corgipile --db 'a.duckdb' SHOW MODELS")) == 1


def test_a_budget_alone_keeps_the_connection(notebook):
    notebook("%corgipile --memory 64MB CREATE TABLE kept AS SELECT 1 AS one")
    assert notebook("%corgipile --memory 128MB SELECT * FROM kept").columns == ["one"]
    with pytest.raises(UsageError, match="memory"):
        notebook("%corgipile --memory much SELECT 1")
    assert len(notebook("%corgipile SELECT * FROM kept")) == 1


def test_a_database_is_opened_again_with_another_budget(notebook):
    notebook("%corgipile --db a.duckdb --memory 64MB CREATE TABLE kept AS SELECT 1 AS one")
    assert len(notebook("%corgipile --db ./a.duckdb --memory 128MB SELECT * FROM kept")) == 1


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%corgipile SELECT * FROM t TRAIN BY smv", "did you mean svm"),
        ("%corgipile SELECT * FROM nowhere", "nowhere"),
        ("%corgipile SELECT :missing_name", "missing_name"),
        ("%corgipile --database a.duckdb SELECT 1", "there is no option --database"),
        ("%corgipile --db a --dsn postgresql://b SELECT 1", "db and dsn exclude each other"),
    ],
)
def test_errors_are_a_line_without_a_traceback(notebook, cell, said, capsys):
    with pytest.raises(UsageError, match=re.escape(said)):
        notebook(cell)
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
    assert "Traceback" not in shown.out + shown.err
