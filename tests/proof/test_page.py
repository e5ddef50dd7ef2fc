"""Pages: one file of HTML that any parser reads, that needs nothing else, and that replaces no other file."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import FOREIGN, tree

from corgipile.errors import WouldOverwrite, WriteFailed
from corgipile.proof import Page, Section, table
from corgipile.proof.charts import Chart, Interval, Line, dots, intervals, key, lines
from corgipile.proof.markup import element
from corgipile.proof.page import STYLE
from corgipile.proof.scales import bytes_scale, linear, log

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)


def sample(name="x"):
    drawn = lines([Line(name, [(0, 1), (1, 2)])], linear([0, 1]), linear([1, 2]), ("along", "up"), mark=1.5)
    below, height = intervals([Interval(name, 1.0, 0.2, 1, 1.1), Interval(name, 2.0)], log([1, 2]), name, 1.0)
    charts = [Chart(name, name, drawn, ("a",), [(name,)]), Chart(name, name, below, height=height)]
    square = Chart(name, name, dots([(0, 0), (1, 1)], 12, (name, name)), width=150, height=158)
    parts = [key([(name, 0)]), table(name, (name, name), [(name, name)], text=True)]
    sections = [Section(name, name, parts, charts), Section(name, "", [], [square], "small")]
    return Page(name, name, name, [(name, name)], sections, name)


@given(st.text().filter(lambda text: not FOREIGN.search(text)))
def test_any_text_is_escaped(text):
    root = tree(sample(text or "x"))
    assert {one.tag for one in root.iter()} == {one.tag for one in tree(sample("x")).iter()}
    if text.isprintable() and text.strip():
        assert root.find("./body/header/h1").text == text


def test_what_no_page_may_hold_is_written_out():
    root = tree(sample("<script>\x00\x1b[31m \udcff"))
    assert root.find("./body/header/h1").text == "<script>\\x00\\x1b[31m \\udcff"
    assert "</p><p" not in element("p", '"</p><p>"', title='"><x')


def test_charts_are_told_to_who_does_not_see_them():
    root = tree(sample("deff"))
    drawn = [one for one in root.iter("svg") if one.get("role") == "img"]
    assert len(drawn) == 3
    for one in drawn:
        names = {child.get("id"): child.text for child in one if child.tag in ("title", "desc")}
        assert names[one.get("aria-labelledby")] == names[one.get("aria-describedby")] == "deff"
    for one in root.iter("table"):
        assert all(cell.get("scope") == "col" for cell in one.find("thead").iter("th"))
        assert all(row.find("th").get("scope") == "row" for row in one.find("tbody"))
    regions = [one for one in root.iter("div") if one.get("role") == "region"]
    assert regions
    assert all(one.get("tabindex") == "0" and one.get("aria-label") for one in regions)
    named = {one.get("id") for one in root.iter() if one.get("id")}
    linked = [one.get("href")[1:] for one in root.iter("a")]
    assert set(linked) <= named
    assert len(linked) == 4  # the sections, how to get it again, and what skips these
    assert [one.tag for one in root.iter() if one.tag in ("h1", "h2", "h3")] == ["h1", "h2", "h2", "h2"]


def test_a_page_is_replaced_by_a_page_and_nothing_else_is(tmp_path):
    path, other = tmp_path / "proof.html", tmp_path / "mine.html"
    sample("first").save(path)
    sample("second").save(path)
    assert "second" in path.read_text()
    other.write_text("<!DOCTYPE html>\n<html>")
    with pytest.raises(WouldOverwrite, match="not a page written by corgipile"):
        sample().save(other)
    sample().save(other, overwrite=True)
    with pytest.raises(WouldOverwrite, match="one of the input files"):
        sample().save(path, inputs=[path], overwrite=True)
    with pytest.raises(WriteFailed, match="no folder"):
        sample().save(tmp_path / "none" / "proof.html")
    assert {one.name for one in tmp_path.iterdir()} == {"proof.html", "mine.html"}


@given(st.lists(NUMBERS))
def test_scales_hold_what_they_are_made_of(values):
    for scale in (linear(values), linear(values, zero=True), log([abs(one) for one in values]), bytes_scale(values)):
        assert scale.low < scale.high
        assert 2 <= len(scale.ticks) <= 40
        for tick, text in scale.ticks:
            assert scale.low <= tick <= scale.high
            assert text
        assert all(0 <= scale.at(value) <= 1 for value in values)
    scale = linear(values)
    slack = 1e-8 * (scale.high - scale.low)
    assert all(scale.low - slack <= value <= scale.high + slack for value in values)


def test_what_is_no_number_is_left_out_of_lines():
    drawn = "".join(lines([Line("a", [(0, 1), (1, float("nan")), (2, 3)])], linear([0, 2]), linear([1, 3]), ("", "")))
    assert "nan" not in drawn
    assert linear([float("nan"), float("inf")]).ticks


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colours_are_far_enough_from_the_paper():
    modes = re.findall(r":root \{(.*?)\}", STYLE.read_text(), re.DOTALL)
    assert len(modes) == 2
    for mode in modes:
        found = dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", mode))
        assert len(found) == 15
        for name in ("ink", "soft"):  # WCAG 2.2: text, and what is drawn
            assert contrast(found[name], found["paper"]) >= 4.5
            assert contrast(found[name], found["panel"]) >= 4.5
        for at in range(9):
            assert contrast(found[f"c{at}"], found["paper"]) >= 4.5
        assert contrast(found["bad"], found["paper"]) >= 3


def test_long_names_differ_where_they_differ():
    given = [Interval(f"a_column_of_a_table_whose_names_begin_alike_{at:02}", 1.0 + at) for at in range(12)]
    drawn = [str(one) for one in intervals(given, linear([0, 20]), "h_D")[0]]
    names = {one for one in drawn if 'class="name"' in one}
    assert len({re.sub(r'y="[^"]*"', "", one) for one in names}) == 12
    assert all("…" in one for one in names)


@pytest.mark.parametrize("epochs", [1, 2, 3, 7, 12, 40, 1000])
def test_epochs_are_counted_in_whole_numbers(epochs):
    scale = linear(range(1, epochs + 1), zero=True, whole=True)
    assert all(at == int(at) for at, _ in scale.ticks)
    assert (scale.low, len(scale.ticks) <= 7) == (0, True)
    assert scale.high >= epochs
