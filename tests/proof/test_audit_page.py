"""The page of an audit says what the audit says."""

import numpy as np
import pytest
from pages import text_of, tree
from planted import LABELS, ROWS, alone

import corgipile as cp
from corgipile.proof import audit_page
from corgipile.proof.page import Page
from corgipile.quality import Audit, audit
from corgipile.verdicts import FAULTS

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def report():
    table = cp.open({"row": np.arange(6000), "label": np.arange(6000) * 10 // 6000, SCRIPT: np.arange(6000) / 7})
    loader = cp.Loader(table, batch_size=50, memory="64KB", order="corgipile")
    return audit(loader, id="row", key=["label", SCRIPT], rows=6000)


def test_an_audit_is_saved_as_one_page(report, tmp_path):
    report.save(tmp_path / "proof.html")
    page = (tmp_path / "proof.html").read_text()
    assert len(page) < 500_000
    assert SCRIPT not in page
    root = tree(page)
    assert root.find("./body/header/h1").text == report.verdict
    text = text_of(page)
    for epoch in report.epochs:
        for spread in epoch.spreads:
            for value, half in (spread.deff, spread.head, spread.middle, spread.tail):
                assert f"{value:.2f} ± {half:.2f}" in text
            assert f"{spread.prefix:.2f}" in text
        assert f"{epoch.spreads[0].gap.gap:,}" in text
    assert "None of the 16 known faults" in text
    dots = [one for one in root.iter("path") if (one.get("class") or "").endswith("dots")]
    assert [one.get("d").count("M") for one in dots] == [1024, 1024]


def test_places_are_of_rows_where_they_came(report):
    for epoch in report.epochs:
        assert len(set(epoch.places)) == 1024
        assert {row for row, _ in epoch.places} == {row for row, _ in report.epochs[0].places}
    in_order = [{"id": np.arange(at, at + 50)} for at in range(0, 6000, 50)]
    (epoch,) = audit(in_order, id="id", rows=6000, epochs=1).epochs
    assert all(row == at for row, at in epoch.places)
    assert "0% of the table away from their places" in text_of(audit_page(audit(in_order, id="id", rows=6000)))
    named = [{"id": [f"row {row}" for row in range(at, at + 50)]} for at in range(0, 6000, 50)]
    assert audit(named, id="id", epochs=1).epochs[0].places == ()


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_on_the_page(name):
    loaders, other = alone(name)
    found = audit(*loaders, id="id", key="label", rows=ROWS, other_seed=other)
    text = text_of(audit_page(found))
    for fault in found.faults:
        assert fault.name in text
        assert fault.detail in text


def test_a_page_stays_small_whatever_was_audited():
    watched = Audit(id="id", key=[f"key {at}" for at in range(60)], rows=ROWS)
    rng = np.random.default_rng(0)
    for _ in range(12):
        rows = rng.permutation(ROWS)
        for some in np.array_split(rows, 4):
            watched.add({"id": some, **{f"key {at}": LABELS[some] for at in range(60)}})
        watched.end_epoch()
    page = audit_page(watched.report())
    assert isinstance(page, Page)
    assert len(page.html()) < 500_000
    assert "8 of 12 epochs" in text_of(page)
    assert "8 of 61 keys" in text_of(page)


def test_an_audit_without_row_numbers_or_of_few_rows_has_a_page():
    text_of(audit_page(audit([{"label": [0, 1]}], key="label")))
    text_of(audit_page(audit([{"id": [0]}], id="id", rows=1)))
