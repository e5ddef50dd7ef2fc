"""Every code block of README and docs runs as it stands; those of PostgreSQL in tests/postgres/test_documents.py."""

import shlex
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from documents import ROOT, blocks, commands, languages

from corgipile import cli

IMAGES = """
import io
import numpy as np, pyarrow as pa
rows = np.random.default_rng(0)
pixels = rows.integers(0, 255, (2000, 48), np.uint8)
column = pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), 48)
table = pa.table({"image": column, "label": pa.array(np.arange(2000) // 200, pa.int64())})
with pa.ipc.new_file("images.arrow", table.schema) as writer:
    writer.write_table(table, max_chunksize=100)
"""
README = """
import numpy as np, pandas as pd
rows = np.random.default_rng(0)
label = np.arange(2000) // 1000
frame = pd.DataFrame({"x": rows.normal(size=2000) + 3 * label, "y": rows.normal(size=2000), "label": label})
frame.to_parquet("train.parquet")
seen = []
def step(x, y):
    seen.append(tuple(x.shape))
"""
AFTER_README = """
assert sum(rows for rows, _ in seen) == 5 * 2000 and {width for _, width in seen} == {2}
assert model.score(frame[["x", "y"]], frame["label"]) > 0.9
"""
FRAMEWORKS = """
import torch
from torch import nn
from accelerate import Accelerator
from transformers import Trainer, TrainingArguments

def name_the_labels(batch):
    return {"x": torch.as_tensor(batch["image"]).float(), "labels": torch.as_tensor(batch["label"])}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(48, 10)
    def forward(self, x, labels):
        scores = self.layer(x)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}

arguments = TrainingArguments("out", max_steps=3, use_cpu=True, report_to=[], disable_tqdm=True)
accelerator = Accelerator(cpu=True)  # after the arguments, which forget what accelerators there were
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
AFTER_FRAMEWORKS = """
assert sum(len(batch["label"]) for batch in Rows().train_dataloader()) == 2000
WholeBatches(model, arguments, train_dataset=dataset).train()
"""


def test_the_documents_have_no_blocks_that_nothing_runs():
    usual, sql = {"sh", "python", "text", "output"}, {"sh", "sql"}
    run = {"postgres/README.md": sql, "docs/server.md": sql, "docs/bigquery.md": {"sql"}}
    run |= dict.fromkeys(("docs/sql.md", "docs/tutorials/sql.md"), usual | sql)
    for name, kinds in languages().items():
        assert set(kinds) <= run.get(name, usual), name
    assert sum(map(len, languages().values())) > 10


def script(folder, *parts):
    """Run Python code in a folder, in a process of its own."""
    (folder / "script.py").write_text("\n".join(parts))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_readme_in_python(tmp_path):
    for module in ("torch", "sklearn", "pandas"):
        pytest.importorskip(module)
    script(tmp_path, README, *blocks("README.md", "python"), AFTER_README)


def test_frameworks(tmp_path):
    for module in ("torch", "lightning", "accelerate", "transformers"):
        pytest.importorskip(module)
    script(tmp_path, IMAGES, FRAMEWORKS, *blocks("docs/frameworks.md", "python"), AFTER_FRAMEWORKS)


PAGES = [name for name, kinds in languages().items() if name.startswith("docs/") and "python" in kinds]
EACH = """
import os
for page, code in PAGES.items():
    os.makedirs(page)
    os.chdir(page)
    if (name := code.partition("\\n")[0].removeprefix("# ")).endswith(".py"):
        open(name, "w").write(code)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    os.chdir(HERE)
"""


def test_pages(tmp_path, monkeypatch, capsys):
    """Blocks of a page run one after the other in an empty folder, Python first; all pages in one process."""
    code = {page: "\n".join(blocks(page, "python")) for page in PAGES if page != "docs/frameworks.md"}
    if find_spec("torch") is None:
        code = {page: lines for page, lines in code.items() if "torch" not in lines}
    script(tmp_path, f"PAGES, HERE = {code!r}, {str(tmp_path)!r}", EACH)
    for page in code:
        monkeypatch.chdir(tmp_path / page)
        for line in (line for block in blocks(page, "sh") for line in commands(block)):
            assert line.startswith("corgipile ")
            if not line.startswith("corgipile pg "):  # tests/postgres/test_documents.py runs these
                assert cli.main(shlex.split(line)[1:]) == 0, line
    capsys.readouterr()


def test_readme_in_a_shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"x": np.arange(2000) % 50 / 50, "label": np.arange(2000) // 1000}), "train.parquet")
    lines = [line for block in blocks("README.md", "sh") for line in commands(block)]
    assert len(lines) > 4
    for line in lines:
        words = shlex.split(line)
        if words[0] == "make":
            subprocess.run([*words, "--dry-run", "-C", str(ROOT)], check=True, capture_output=True)
        else:
            assert words[0] == "corgipile"
            assert cli.main(words[1:]) == 0, line
    capsys.readouterr()
