"""Published figures are those of saved results."""

import json

import figures_of_pages as figures
import pytest

PAGE = """
<!-- results: torch_loader -->

| loader | warm |
|---|---|
| map-style | {} |
"""


@pytest.mark.parametrize("page", figures.PAGES)
def test_each_figure_is_in_a_result_that_its_table_names(page):
    for table in figures.tables((figures.ROOT / page).read_text(encoding="utf-8")):
        assert table.results, f"{page}:{table.line} names no results"
        assert not table.unsupported(), f"{page}:{table.line}"


@pytest.mark.parametrize("path", sorted(figures.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_results_say_their_day_and_machine(path):
    about = json.loads(path.read_text(encoding="utf-8"))["about"]
    assert about["date"]
    assert about["cpu"]
    assert about["corgipile"]


def test_a_figure_without_a_result_is_found():
    held, changed = (figures.tables(PAGE.format(figure))[0] for figure in ("0.21 M", "0.26 M, 5.48 M"))
    assert not held.unsupported()
    assert changed.unsupported() == ["0.26 M"]
    assert figures.tables("| a | b |\n|---|---|\n| 5 | 7 |")[0].unsupported() == ["7"]
