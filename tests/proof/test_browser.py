"""Pages in a browser, at three widths, in light, in dark and on paper; where there is one.

CORGIPILE_SCREENSHOTS names a folder that keeps what was seen.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE

import corgipile as cp
from corgipile.comparison import compare
from corgipile.datasets import clustered
from corgipile.description import about
from corgipile.planner import choose
from corgipile.proof import Compared, about_page, audit_page, comparison_page
from corgipile.quality import audit

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
LOOK = """<script>
const d = document.documentElement, small = [], out = [];
for (const one of document.querySelectorAll("svg text")) {
  const box = one.getBoundingClientRect();
  if (box.height && box.height < 10) small.push(one.textContent);
  if (box.right > d.clientWidth + 1 || box.left < -1) out.push(one.textContent);
}
for (const one of document.querySelectorAll("h1,h2,p,li,figcaption,dd,pre,svg")) {
  if (one.getBoundingClientRect().right > d.clientWidth + 1) out.push(one.tagName);
}
d.setAttribute("data-wide", d.scrollWidth <= d.clientWidth);
d.setAttribute("data-small", small.length); d.setAttribute("data-out", out.join("|"));
d.setAttribute("data-paper", getComputedStyle(document.body).backgroundColor);
</script></body>"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rows = clustered(4000, classes=2)
    found = compare(rows, epochs=3, memory="64KB", audited=True, batch=64)
    choice = choose(rows, memory="64KB", seconds=0.01)
    of = Compared(
        "a_name_of_a_table_that_is_as_long_as_names_are_now_and_then.parquet", 4000, 9 << 30, "svm", 3, "64KB"
    )
    of = Compared(**{**vars(of), "choice": choice, "command": "corgipile compare " + "x" * 300})
    comparison_page(found, of).save(folder / "compare.html")
    name = "a column whose name is long and has <b> & more in it"
    table = cp.open({"row": np.arange(4000), "label": np.arange(4000) // 1000, name: np.arange(4000) / 3})
    in_order = [{"row": [at], "label": [at // 1000], name: [at / 3]} for at in range(4000)]
    for loader, of_what in ((cp.Loader(table, batch_size=64), "good"), (in_order, "bad")):
        report = audit(loader, id="row", key=["label", name], rows=4000, batch_size=64)
        audit_page(report).save(folder / f"audit-{of_what}.html")
    about_page(about(table, block=100, columns=True), "rows of mine").save(folder / "info.html")
    return folder


def chromium(folder, *words):
    fixed = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    command = [BROWSER, *fixed, f"--user-data-dir={folder / 'profile'}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["compare", "audit-good", "audit-bad", "info"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_a_page_fits_its_window(pages, tmp_path, name, width):
    text = (pages / f"{name}.html").read_text()
    looked = tmp_path / "looked.html"
    looked.write_text(re.sub(r'<meta http-equiv="[^>]*>', "", text).replace("</body>", LOOK))
    papers = set()
    for scheme in (0, 1):  # dark, light
        shown = [f"--window-size={width},1000", f"--blink-settings=preferredColorScheme={scheme}"]
        facts = dict(re.findall(r'data-(\w+)="([^"]*)"', chromium(tmp_path, *shown, "--dump-dom", f"file://{looked}")))
        assert facts["wide"] == "true", facts
        assert facts["out"] == "", facts
        assert facts["small"] == "0", facts
        papers.add(facts["paper"])
        keep = os.environ.get("CORGIPILE_SCREENSHOTS")
        if keep:
            path = Path(keep) / f"{name}-{width}-{('dark', 'light')[scheme]}.png"
            tall = f"--window-size={width},{9000 if width < 500 else 4800}"
            chromium(tmp_path, *shown[1:], tall, f"--screenshot={path.absolute()}", f"file://{pages / name}.html")
            assert path.stat().st_size > 10_000
    assert papers == {"rgb(19, 21, 23)", "rgb(253, 253, 251)"}


def test_a_page_is_printed(pages, tmp_path):
    chromium(tmp_path, f"--print-to-pdf={tmp_path / 'proof.pdf'}", f"file://{pages / 'compare.html'}")
    assert (tmp_path / "proof.pdf").read_bytes().startswith(b"%PDF")
