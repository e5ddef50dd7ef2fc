"""Only text that is surely CSV is read as CSV; other text is rejected with a hint."""

import gzip
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgipile as cp
from corgipile import cli, datasets, tables
from corgipile.errors import BadArgument, ParseError, TableError, UnknownFormat
from corgipile.tables.formats.text.guess import MAX_SAMPLED_LINES

JSON_LINES = '{"x": 1, "y": 2, "label": 0}\n{"x": 3, "y": 4, "label": 1}\n'
WABBIT = "1 |f price:.23 sqft:.25\n-1 |f price:.53 sqft:.32\n"
PROSE = "It was the best of times,\nit was the worst of times,\nit was the age of wisdom.\n"
SVM = "1 1:0.5 2:1\n-1 1:1 2:0.25\n"
NO_CSV = {
    "json lines": (JSON_LINES, "JSON"),
    "json": ('[\n  {"x": 1},\n  {"x": 2}\n]\n', "JSON"),
    "json of numbers": ("[[1, 2], [3, 4]]\n", "JSON"),
    "wabbit": (WABBIT, "Vowpal Wabbit"),
    "wabbit with a tag": ("1 1.0 tag|a x:1 |b y\n0 1.0 tag|a x:2 |b y\n", "Vowpal Wabbit"),
    "wabbit without labels": ("|f a b\n|f c d\n", "Vowpal Wabbit"),
    "pipes": ("a|b\n1|2\n", "tabs, commas or semicolons"),
    "prose": (PROSE, "tabs, commas or semicolons"),
    "prose of equal words": ("one two three\nfour five six\n", "may not be CSV"),
    "a line of prose": ("the quick brown fox\n", "may not be CSV"),
    "words": ("alice\nbob\n", "may not be CSV"),
    "svmlight": (SVM, None),
    "markup": ("<html><body>1,2</body></html>\n", "HTML"),
    "a log": ("2024-01-01 12:00:00 INFO started\n2024-01-01 12:00:01 INFO done\n", None),
    "names or not": ("alice,3\nbob,4\n", "--header"),
    "dates or names": ("2024-01-01,red\n2024-01-02,blue\n", "--header"),
    "truths or names": ("true,red\nfalse,blue\n", "--header"),
    "ragged": ("a,b\n1,2\n1,2,3\n", "row 3 must have 2 columns, got 3"),
    "excel": ("sep=;\na;b\n1;2\n", "begins with 'sep=;', as Excel writes"),
    "yaml": ("name: x\nlist:\n  - 1\n", None),
    "code": ("def f(x, y):\n    return x\n", None),
}


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a", "a.json", "a.csv.gz"])
@pytest.mark.parametrize("kind", NO_CSV)
def test_what_is_no_csv_is_refused(tmp_path, capsys, name, kind):
    text, hint = NO_CSV[kind]
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    if kind in ("svmlight", "json lines") and "csv" not in name:
        assert cp.convert(tmp_path / name, tmp_path / "out.arrow") == 2
        return
    assert cli.main(["convert", str(tmp_path / name), str(tmp_path / "out.arrow")]) == 2
    told = capsys.readouterr()
    assert (hint or name) in told.err
    assert told.err.isprintable() is False  # the newline that ends it
    assert told.err.strip().isprintable()
    assert [path.name for path in tmp_path.iterdir()] == [name]


CSV = {
    "names": "x,y,label\n1,2,0\n3,4,1\n",
    "no names": "1,2,0\n3,4,1\n",
    "quotes": 'x,name,label\n1,"a, b",0\n2,"c ""d""",1\n',
    "times": "when,x\n2024-01-01 12:30:00,1\n2024-01-01 12:31:00,2\n",
    "gaps": "x,y\n1,\n,2\n",
    "index of pandas": ",x,label\n0,1.5,a\n1,2.5,b\n",
    "mark of order": "\ufeffx,y\n1,2\n3,4\n",
    "tabs": "x\ty\n1\ta b\n2\tc\n",
    "semicolons": "x;y\n1;a\n2;b\n",
    "windows": "x,y\r\n1,2\r\n3,4\r\n",
}


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
@pytest.mark.parametrize("kind", CSV)
def test_what_is_csv_keeps_its_rows(tmp_path, name, kind):
    (tmp_path / name).write_text(CSV[kind], newline="")
    assert cp.convert(tmp_path / name, tmp_path / "out.arrow") == 2
    assert len(cp.open(tmp_path / "out.arrow")) == 2


def test_a_name_and_a_word_settle_what_text_does_not(tmp_path):
    (tmp_path / "a.csv").write_text("name,town\nann,ulm\nbob,bonn\n")
    assert cp.convert(tmp_path / "a.csv", tmp_path / "out.arrow") == 2
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    assert cp.convert(tmp_path / "a.csv", tmp_path / "out.arrow") == 2
    (tmp_path / "a.csv").write_text("ann,3\nbob,4\n")
    for header, rows in ((False, 2), (True, 1)):
        assert cp.convert(tmp_path / "a.csv", tmp_path / "out.arrow", header=header) == rows


def test_a_folder_of_csv_is_one_table(tmp_path):
    (tmp_path / "rows").mkdir()
    for name in ("b.csv", "a.csv.gz", ".hidden.csv"):
        data = b"x,label\n1,0\n2,1\n"
        (tmp_path / "rows" / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert cp.convert(tmp_path / "rows", tmp_path / "out.arrow") == 4


rows_of_fields = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(st.integers(-9, 9), min_size=width + 1, max_size=width + 1), min_size=1)
)


@settings(deadline=None)
@given(rows_of_fields, st.sampled_from(",;\t"), st.booleans())
def test_no_row_of_numbers_is_lost(tmp_path_factory, rows, mark, names):
    folder = tmp_path_factory.mktemp("guess")
    head = [mark.join(f"c{at}" for at in range(len(rows[0])))] if names else []
    text = "\n".join([*head, *(mark.join(map(str, row)) for row in rows)])
    (folder / "a").write_text(text + "\n")
    assert cp.convert(folder / "a", folder / "out.arrow") == len(rows)


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_any_text_is_read_whole_or_refused(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("guess")
    (folder / "a").write_text(text, newline="")
    lines = [line for line in re.split("\r\n|\r|\n", text) if line.strip()]  # no other characters end a row
    try:
        rows = cp.convert(folder / "a", folder / "out.arrow")
    except TableError:
        assert not (folder / "out.arrow").exists()
    else:
        assert rows >= len(lines) - 1


def test_more_lines_than_are_looked_at_and_a_longer_first_line(tmp_path):
    (tmp_path / "a").write_text("x,y\n" + "1,2\n" * (3 * MAX_SAMPLED_LINES))
    assert cp.convert(tmp_path / "a", tmp_path / "out.arrow") == 3 * MAX_SAMPLED_LINES
    (tmp_path / "a").write_text("x,y\n" + "1,2\n" * (3 * MAX_SAMPLED_LINES) + "1,2,3\n")
    with pytest.raises(ParseError, match="Expected 2 columns"):
        cp.convert(tmp_path / "a", tmp_path / "out.arrow")
    (tmp_path / "a").write_text("1," * 600_000 + "1\n2\n")
    with pytest.raises(UnknownFormat, match="first line must have at most"):
        cp.convert(tmp_path / "a", tmp_path / "out.arrow")


@pytest.mark.parametrize("command", [["info"], ["train"], ["compare"], ["predict", "{m}"], ["index"]])
def test_commands_read_csv(tmp_path, capsys, command):
    rows, model = tmp_path / "a.csv", str(tmp_path / "m.safetensors")
    rows.write_text(CSV["names"])
    cp.convert(rows, tmp_path / "a.arrow")
    cp.train(tmp_path / "a.arrow", epochs=1, save=model)
    assert cli.main([*(word.format(m=model) for word in command), str(rows)]) == 0
    told = capsys.readouterr().out
    assert command != ["info"] or "text is parsed at every read; `corgipile convert`" in " ".join(told.split())
    rows.write_text(JSON_LINES)
    with pytest.raises(UnknownFormat, match="read_json"):
        tables.open(rows)


URLS = ["s3://bucket/a.arrow", "https://host/a.csv", "hf://datasets/x", "gs://b/a.parquet", "file:///a.arrow"]


@pytest.mark.parametrize("url", URLS)
def test_outputs_are_no_urls(tmp_path, capsys, url):
    rows = tmp_path / "a.csv"
    rows.write_text(CSV["names"])
    for command in (["convert", rows, url], ["train", rows, "--save", url], ["reshuffle", rows, url]):
        assert cli.main([*map(str, command)]) == 2
        told = capsys.readouterr().err
        assert url in told
        assert "is a URL" in told
    with pytest.raises(BadArgument, match="is a URL"):
        datasets.higgs_like(url, 10)


def test_places_that_nothing_reads(capsys):
    assert cli.main(["info", "x+y://a"]) == 2
    assert "x+y:// is not supported" in capsys.readouterr().err
