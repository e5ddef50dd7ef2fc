"""The documentation site names what there is: pages, links, errors and public names; `make docs` builds it."""

import importlib
import json
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from documents import ROOT, blocks, languages

import corgipile as cp
from corgipile import losses
from corgipile.orders import NAMES
from corgipile.tables.registry import formats

DOCUMENTS = [*languages(), "kernel/README.md", "bench/README.md"]
PAGES = [name.removeprefix("docs/") for name in DOCUMENTS if name.startswith("docs/")]
PUBLIC = ("corgipile", "orders", "tables", "torch", "linear.estimators", "quality", "postgres", "testing")


def text(name):
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files(name):
    code = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", code.sub("", text(name))):
        if not target.startswith(("http://", "https://")):
            assert (ROOT / name).parent.joinpath(target).exists(), target


def test_every_page_is_in_the_menu_once():
    menu = re.findall(r": ([\w/-]+\.md)$", text("mkdocs.yml"), re.MULTILINE)
    assert sorted(menu) == sorted(PAGES)


def test_included_files_are_there():
    included = [found for page in PAGES for found in re.findall(r'^--8<-- "(.+)"$', text(f"docs/{page}"), re.MULTILINE)]
    assert "postgres/README.md" in included
    assert all((ROOT / name).is_file() for name in included)


def test_readme_leads_to_the_guides():
    readme = text("README.md")
    for page in ("start.md", "guide.md", "formats.md", "pytorch.md", "errors.md", "riffle.md"):
        assert f"(docs/{page})" in readme, page


def test_every_error_has_its_section():
    sections = re.findall(r"^### (\w+)$", text("docs/errors.md"), re.MULTILINE)
    assert sorted([*sections, "CorgiPileError"]) == cp.errors.__all__


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference(name):
    if name == "torch":
        pytest.importorskip("torch")
    if name == "linear.estimators":
        pytest.importorskip("sklearn")
    path = "corgipile" if name == "corgipile" else f"corgipile.{name}"
    names = set(importlib.import_module(path).__all__) - {"errors", "orders", "EMBEDDED"}
    page = text(f"docs/reference/{name.partition('.')[0]}.md")
    missing = {public for public in names if not re.search(rf"(:::|heading:) {path}\.{public}$", page, re.MULTILINE)}
    assert not missing - ({"open"} if name == "tables" else set())


@pytest.mark.parametrize(
    ("page", "names"), [("how-to/order", NAMES), ("reference/settings", losses.NAMES), ("formats", formats())]
)
def test_every_order_model_and_format_is_named(page, names):
    assert not [name for name in names if f"`{name}`" not in text(f"docs/{page}.md")]


def table(**columns):
    return cp.open(pa.table(columns))


def ragged():
    lengths = np.full(5000, 2)
    lengths[1000] = 3
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    rows = pa.ListArray.from_arrays(offsets, np.zeros(lengths.sum(), np.float32))
    return list(cp.Loader(pa.table({"x": rows})))


SHOWN = {
    "BadArgument": lambda folder: cp.Loader(table(x=[1.0]), order="rifle"),
    "BadSize": lambda folder: cp.Loader(table(x=[1.0]), memory="64MBB"),
    "BudgetTooSmall": lambda folder: cp.Loader(f"{folder}/wide.npy", memory="30KB"),
    "WouldOverwrite": lambda folder: cp.convert(f"{folder}/t.arrow", f"{folder}/t.arrow"),
    "UnknownFormat": cp.open,
    "MissingColumn": lambda folder: cp.Loader(table(features=[1.0], label=[0]), columns=["featurs"]),
    "BadSchema": lambda folder: cp.train(table(x=["a", "b"], label=[0, 1]), features="x"),
    "ParseError": lambda folder: cp.open(f"{folder}/bad.svm"),
    "RaggedRows": lambda folder: ragged(),
    "BadValue": lambda folder: cp.train(table(x=[1.0, np.nan, 2.0], label=[0, 1, 1])),
    "BadLabel": lambda folder: cp.train(table(x=[1.0, 3.0, 2.0], label=[0, 1, 2])),
    "StateMismatch": lambda folder: cp.Loader(table(x=[1.0]), seed=2).load_state_dict(
        cp.Loader(table(x=[1.0]), seed=1).state_dict()
    ),
    "BadModelFile": lambda folder: cp.load(f"{folder}/t.arrow"),
    "WriteFailed": lambda folder: cp.convert(table(x=[1.0]), "/nonexistent/x.arrow"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_messages_are_those_shown(name, tmp_path):
    np.save(tmp_path / "wide.npy", np.zeros((300, 5000), np.float32))
    cp.convert(table(x=[1.0]), tmp_path / "t.arrow")
    (tmp_path / "bad.svm").write_text("1 1:0.5\n-1 2:x\n")
    section = text("docs/errors.md").partition(f"### {name}\n")[2].partition("\n### ")[0]
    with pytest.raises(getattr(cp.errors, name)) as raised:
        SHOWN[name](str(tmp_path))
    said = re.sub(r"MemoryTable\(.*?\)(?= has)", "MemoryTable(...)", str(raised.value).replace(f"{tmp_path}/", ""))
    shown = "".join(re.findall(r"^```output\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)).splitlines()
    assert said in shown or name == "UnknownFormat"
    assert name != "UnknownFormat" or any("files of several formats" in line for line in shown)


def test_tutorials_are_notebooks_too(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "notebooks.py"), str(tmp_path)]
    written = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    pages = [name for name in DOCUMENTS if name.startswith("docs/tutorials/")]
    assert len(written) == len(pages) > 5
    for page in pages:
        notebook = json.loads((tmp_path / page.rpartition("/")[2].replace(".md", ".ipynb")).read_text())
        code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert [one for one in code if one[0] != "!"] == [block.strip("\n") for block in blocks(page, "python")]
        assert (any(one.startswith("!corgipile ") for one in code)) == (page == "docs/tutorials/sql.md")
        assert notebook["cells"][0]["source"].startswith("# ")
        assert not any("```python" in cell["source"] for cell in notebook["cells"])
