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

from corgipile import cli, convert
from corgipile.datasets import higgs_like

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
PYTORCH = """
import warnings
warnings.filterwarnings("ignore", message=".*pin_memory.*")
seen = []
def augment(batch):
    return batch
def train(image, label):
    seen.append(len(label))
class Images:
    targets = list(np.arange(8000) // 800)
    def __len__(self):
        return 8000
    def __getitem__(self, at):
        return at
images = Images()
"""
AFTER_PYTORCH = """
assert sum(seen) == 5 * 2000, seen
assert sum(len(batch) for batch in loader) == 8000
dataset.load_state_dict(state)
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
    sql = {"postgres/README.md": {"sh", "sql"}, "docs/server.md": {"sh", "sql"}}
    every = {"sh", "python", "sql", "text", "output"}
    run = {**sql, "README.md": every, "docs/sql.md": every, "docs/bigquery.md": {"sql"}}
    for name, kinds in languages().items():
        assert set(kinds) <= run.get(name, {"sh", "python", "text", "output"}), name
    assert sum(map(len, languages().values())) > 10


def script(folder, *parts):
    """Run Python code in a folder, in a process of its own."""
    (folder / "script.py").write_text("\n".join(parts))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_readme_in_python(tmp_path):
    pytest.importorskip("torch")
    after = "assert model.history[-1]['test_accuracy'] > 0.7\nassert batch['features'].shape[1] == 28\n"
    script(tmp_path, blocks("README.md", "python")[0], after)


def test_readme_in_pytorch(tmp_path):
    pytest.importorskip("torch")
    script(tmp_path, IMAGES, PYTORCH, *blocks("README.md", "python")[1:], AFTER_PYTORCH)


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
            assert cli.main(shlex.split(line)[1:]) == 0, line
    capsys.readouterr()


def without_seconds(table):
    """Return the cells of a table, but for what each epoch took, which is last."""
    return [line.split()[:-1] for line in table.splitlines()]


def test_readme_in_a_shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    higgs_like("higgs.arrow", 20_000, test="held_out.arrow", test_rows=1000)
    higgs_like("sorted.arrow", 100_000)
    convert("sorted.arrow", "higgs.parquet")
    pq.write_table(pa.table({"x": np.arange(100.0), "label": np.arange(100) % 2}), "events.parquet")
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line for block in blocks("README.md", "sh") for line in commands(block)]
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(line)
        if words[0] == "make":
            subprocess.run([*words, "--dry-run", "-C", str(ROOT)], check=True, capture_output=True)
        elif words[:2] != ["corgipile", "pg"]:
            assert words[0] == "corgipile"
            assert cli.main(words[1:]) == 0, line
            printed = capsys.readouterr().out
            if words[1] == "sql":
                (shown,) = blocks("README.md", "output")
                assert without_seconds(printed) == without_seconds(shown)
    assert np.load("predictions.npy").shape == (1000,)
