"""Results as tables cut to a terminal, CSV, JSON and HTML."""

import csv
import datetime as dt
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from corgipile.sql.answers.caret import around
from corgipile.sql.answers.cells import json_values, texts
from corgipile.sql.answers.data import CsvAnswers, JsonAnswers
from corgipile.sql.answers.frame import Frame
from corgipile.sql.answers.tables import draw
from corgipile.sql.answers.text import TextAnswers
from corgipile.sql.engines.engine import Result

EPOCHS = pa.table(
    {
        "epoch": pa.array([1, 2], pa.int32()),
        "loss": [0.6931471805599453, 0.25],
        "accuracy": [0.5, 0.98765432],
        **{name: pa.nulls(2, pa.float64()) for name in ("r2", "holdout_loss", "holdout_accuracy", "holdout_r2")},
        "rows": [4_000_000, 4_000_000],
        "seconds": [0.123456, 0.1],
    }
)
MIXED = pa.table(
    {
        "city": ["Zürich", "東京" * 30, None, "two\nlines \x1b[31m"],
        "list": pa.array([[0.1, None], [], None, [1.0] * 1000], pa.list_(pa.float32())),
        "when": pa.array([dt.date(2026, 1, 2)] * 4),
        "exact": pa.array([Decimal("12345678901234567.89")] * 4),
        "raw": [b"\x00\xff", b"", None, b"abc"],
        "struct": [{"a": 1, "b": "x"}] * 4,
        "kind": pa.array(["u", "v", None, "u"]).dictionary_encode(),
        "big": [1e300, float("nan"), float("inf"), 1234567.891],
        "yes": [True, False, None, True],
    }
)


def result(table, size=2):
    return Result(table.schema, iter(table.to_batches(max_chunksize=size)))


def shown(table, wide=80, **options):
    out = io.StringIO()
    TextAnswers(out, lambda: wide, **options).show(result(table))
    return out.getvalue()


def test_the_answer_of_a_training_fits_eighty_columns_whole():
    drawn = draw(EPOCHS, 80)
    assert drawn.left_out == []
    assert max(map(len, drawn.lines)) <= 80
    assert [line.split() for line in drawn.lines[:2]] == [
        ["holdout_"] * 3,
        ["epoch", "loss", "accuracy", "r2", "loss", "accuracy", "r2", "rows", "seconds"],
    ]
    assert drawn.lines[3].split()[:3] == ["1", "0.693147", "0.5"]


@pytest.mark.parametrize("wide", [40, 60])
def test_where_it_does_not_empty_columns_go_first_and_are_named(wide):
    text = shown(EPOCHS, wide)
    lines = text.splitlines()
    assert max(map(len, lines[:-1])) <= wide
    assert "holdout_r2" in lines[-1]
    assert lines[-1].startswith("(no room for ")
    assert {"epoch", "loss", "rows", "seconds"} <= set(text.split())


@pytest.mark.parametrize("wide", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal_whatever_the_script(wide):
    drawn = draw(MIXED, wide)
    assert max(map(cell_len, drawn.lines)) <= wide
    assert all(line.isprintable() for line in drawn.lines)
    assert len(drawn.lines) >= 2 + len(MIXED)
    assert wide < 200 or "1234567.89" in drawn.lines[-1]


def test_numbers_are_never_cut_and_stand_to_the_right():
    table = pa.table({"text": ["a" * 100] * 2, "number": [7, 123_456_789_012]})
    lines = draw(table, 40).lines
    assert lines[2].endswith("             7")
    assert lines[3].endswith("123456789012")
    assert "…" in lines[2]


def test_text_and_null_look_unlike():
    lines = draw(pa.table({"a": ["x", None]}), 80).lines
    assert lines[2:] == ["x", "NULL"]


def test_intervals_are_words():
    many = pa.array([(14, 3, 14706500000000), (0, -1, 0), (0, 0, 0), (0, 0, -1000), None], pa.month_day_nano_interval())
    shown = ["1 year 2 months 3 days 04:05:06.5", "-1 day", "00:00:00", "-00:00:00.000001", None]
    assert texts(many) == [text or "NULL" for text in shown]
    assert json_values(many) == shown


def test_many_columns_leave_the_ends():
    table = pa.table({f"feature_{i}": [float(i)] for i in range(300)} | {"prediction": [1]})
    drawn = draw(table, 80)
    assert "feature_0" in drawn.lines[0] or "feature_" in drawn.lines[0]
    assert drawn.lines[-1].split()[0] == "0.0"
    assert drawn.lines[-1].split()[-1] == "1"
    assert len(drawn.left_out) + len(drawn.lines[-1].split()) == 301


def test_how_many_rows_are_shown_is_said():
    rows = pa.table({"a": range(1234)})
    assert shown(rows, rows=40).splitlines()[-1] == "(40 of 1,234 rows shown)"
    assert shown(rows, rows=40, quiet=True).splitlines()[-1] == "(40 of 1,234 rows shown)"
    assert shown(rows.slice(0, 40), rows=40).splitlines()[-1] == "(40 rows)"
    assert shown(rows.slice(0, 0), rows=40).splitlines()[-2:] == ["-", "(0 rows)"]
    whole = shown(rows).splitlines()
    assert whole[-1] == "(1,234 rows)"
    assert {str(i) for i in range(1234)} <= {line.strip() for line in whole}
    endless = (pa.record_batch({"a": range(30_000)}) for _ in range(1000))
    out = io.StringIO()
    TextAnswers(out, rows=5).show(Result(rows.schema, endless))
    assert out.getvalue().endswith("(5 of more than 120,000 rows shown)\n")


def test_statements_without_rows():
    out = io.StringIO()
    answers = TextAnswers(out)
    answers.show(Result())
    answers.show(Result(count=1))
    assert out.getvalue() == "done\ndone (1 row)\n"


def test_plans_are_shown_as_they_are_laid_out():
    plan = pa.table({"plan": ["SGD  (loss=svm)", "  -> " + "TupleShuffle " * 12]})
    assert shown(plan, 40).splitlines() == plan["plan"].to_pylist()


def test_csv_has_every_row_and_digit():
    out = io.BytesIO()
    answers = CsvAnswers(out)
    answers.show(result(MIXED))
    answers.show(Result())
    answers.show(result(EPOCHS))
    first, second = out.getvalue().decode().split("\n\nepoch,")
    rows = list(csv.DictReader(io.StringIO(first)))
    assert [row["city"] for row in rows] == ["Zürich", "東京" * 30, "", "two\nlines \x1b[31m"]
    assert rows[0]["exact"] == "12345678901234567.89"
    assert json.loads(rows[3]["list"]) == [1.0] * 1000
    assert (rows[0]["raw"], rows[0]["kind"], rows[0]["when"]) == ("00ff", "u", "2026-01-02")
    assert json.loads(rows[0]["struct"]) == {"a": 1, "b": "x"}
    assert "0.6931471805599453" in second


def test_json_is_one_document_whatever_happens():
    out = io.StringIO()
    answers = JsonAnswers(out)
    answers.show(result(MIXED))
    answers.show(Result(count=3))
    same = Result(
        pa.schema([("a", pa.int8())] * 2), iter([pa.record_batch([[1], [2]], ["a", "a"])]), notes=["read once"]
    )
    answers.show(same)
    answers.close()
    first, second, third = json.loads(out.getvalue())["results"]
    assert len(first["rows"]) == 4
    assert [row["big"] for row in first["rows"]] == [1e300, None, None, 1234567.891]
    assert first["rows"][0]["exact"] == "12345678901234567.89"
    assert (second["rows"], second["changed"]) == ([], 3)
    assert third["rows"] == [{"a": 1, "a_2": 2}]
    assert third["notes"] == ["read once"]


def test_json_ends_with_the_error():
    def failing():
        yield pa.record_batch({"a": [1]})
        raise ValueError

    out = io.StringIO()
    answers = JsonAnswers(out)
    assert not answers.fail("BadStatement", "nothing yet", 2)
    with pytest.raises(ValueError):
        answers.show(Result(pa.schema([("a", pa.int64())]), failing()))
    assert answers.fail("BadValue", "row 1", 2)
    document = json.loads(out.getvalue())
    assert document["results"][0]["rows"] == [{"a": 1}]
    assert document["error"] == {"type": "BadValue", "message": "row 1", "code": 2}


KINDS = st.one_of(
    st.none(), st.text(), st.floats(), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.binary(), st.datetimes()
)


@given(
    st.lists(st.tuples(st.text(max_size=30), st.lists(KINDS, min_size=3, max_size=3)), min_size=1, max_size=6),
    st.integers(40, 100),
)
def test_whatever_it_holds_a_table_fits(columns, wide):
    arrays = []
    for _, values in columns:
        kind = next((type(value) for value in values if value is not None), str)
        arrays.append(pa.array([value if type(value) is kind else None for value in values]))
    table = pa.Table.from_arrays(arrays, [name for name, _ in columns])
    drawn = draw(table, wide)
    assert max(map(cell_len, drawn.lines), default=0) <= wide
    assert len(drawn.lines) >= 5
    out = io.StringIO()
    answers = JsonAnswers(out)
    answers.show(result(table))
    answers.close()
    (one,) = json.loads(out.getvalue())["results"]
    assert [len(row) for row in one["rows"]] == [len(columns)] * 3


@given(st.text(alphabet="abc日é ", min_size=1, max_size=200), st.integers(0, 199), st.integers(40, 80))
def test_the_caret_stays_below_its_place(line, at, wide):
    line = line.replace(" ", "_")
    at = min(at, len(line) - 1)
    cut, caret = around([line, " " * cell_len(line[:at]) + "^"], wide)
    assert cell_len(cut) <= wide
    place = cell_len(caret) - 1
    seen = [character for i, character in enumerate(cut) if cell_len(cut[:i]) == place]
    assert line[at] in seen


def test_notebooks_get_escaped_html():
    table = pa.table({"<b>": ["<script>alert(1)</script>", None], "n": [1, 2]})
    html = Frame(table)._repr_html_()
    assert "<script>" not in html
    assert "&lt;b&gt;" in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "2 rows" in html
    assert "40 of 50 rows shown" in Frame(pa.table({"a": range(50)}))._repr_html_()
    assert len(Frame(pa.table({"a": ["x" * 10**6]}))._repr_html_()) < 1000
    assert pa.table(Frame(table)).equals(table)
