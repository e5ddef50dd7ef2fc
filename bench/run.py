"""Run the benchmarks: corgipile against its peers and its own targets, as ratios measured in one run.

Themes: sgd (training speed), loader (batches against other loaders), memory (resident growth, resume, import), budget
(peak memory of every format, order and host), accuracy (against Shuffle Once), learners (against grids and peers),
scales (default scaling of features), steps (their cost relative to plain SGD), text (hashed, against Vowpal Wabbit),
quality (deff and prefix discrepancy), plan (predictions, order="auto"), tables (formats against their own
readers), remote (tables in an object store), torch_* (the PyTorch dataset: loading, accuracy, concurrent fetching,
page runs, TFRecord, feeding a GPU), exchange (of rows among ranks), postgres (training inside the server). Each is
also a script of its own.
"""

import datetime as dt
import importlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from common import HERE, Bench, Row, as_dict, options, run_theme

TORCH = [
    "torch_loader",
    "torch_accuracy",
    "torch_concurrent",
    "torch_pages",
    "torch_tfrecord",
    "torch_wide",
    "torch_gpu",
]
THEMES = [
    "quality",
    "plan",
    "memory",
    "budget",
    "sgd",
    "loader",
    "accuracy",
    "learners",
    "scales",
    "steps",
    "learner_peers",
    "dual",
    "exact",
    "text",
    "tables",
    "remote",
    *TORCH,
    "exchange",
    "local_parts",
    "postgres",
    "sql",
]


def machine() -> dict[str, Any]:
    """Describe the machine and versions of the run."""
    versions = {name: importlib.import_module(name).__version__ for name in ("corgipile", "numpy", "pyarrow")}
    model = Path("/proc/cpuinfo")
    lines = model.read_text().splitlines() if model.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": name or platform.machine(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **versions,
        "load at start": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """Return the checkout's commit, marked if files differ from it; empty without git."""
    try:
        return subprocess.check_output(["git", "describe", "--always", "--dirty"], cwd=HERE, text=True).strip()  # noqa: S607
    except (OSError, subprocess.CalledProcessError):
        return ""


def save(bench: Bench, themes: list[str], about: dict[str, Any]) -> Path:
    """Replace the last run's results, as JSON and Markdown; a part (--only) replaces its own rows."""
    folder = HERE / "results"
    folder.mkdir(parents=True, exist_ok=True)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    about = {"date": today, "commit": commit(), **about, "quick": bench.quick, "repeats": bench.repeats}
    name = "-".join(themes) if len(themes) < len(THEMES) else "all"
    name = f"{name}-quick" if bench.quick else name
    path, failures = folder / f"{name}.json", list(bench.failures)
    if bench.only and path.exists():
        before = json.loads(path.read_text())
        measured = {row.measure for row in bench.rows}
        earlier = [Row(**{field.name: row[field.name] for field in fields(Row)}) for row in before["rows"]]
        bench.rows[:0] = [row for row in earlier if row.measure not in measured]
        failures = before["failures"] + failures
        about["load at start"] = max(about["load at start"], before["about"]["load at start"])
    rows = ",\n".join(json.dumps(as_dict(row)) for row in bench.rows)
    path.write_text(f'{{"about": {json.dumps(about)},\n"failures": {json.dumps(failures)},\n"rows": [\n{rows}\n]}}\n')
    lines = [f"# Benchmarks, {today}", "", ", ".join(f"{k} {v}" for k, v in about.items()), ""]
    for theme in dict.fromkeys(row.theme for row in bench.rows):
        head = ["measure", "value", "target", "", "figures"]
        table = [head, ["---"] * 5, *(row.cells() for row in bench.rows if row.theme == theme)]
        lines += [f"## {theme}", "", *(f"| {' | '.join(cells)} |" for cells in table), ""]
    lines += [f"- failed: {failure}" for failure in failures]
    (folder / f"{name}.md").write_text("\n".join(lines).rstrip() + "\n")
    return folder


def main() -> int:
    """Run the chosen themes and sum up; the status is 1 for a wrong result, not for a missed target."""
    chosen = options(__doc__ or "", THEMES)
    themes = chosen.themes or THEMES
    if unknown := set(themes) - set(THEMES):
        print(f"no theme {', '.join(sorted(unknown))}; there are {', '.join(THEMES)}", file=sys.stderr)
        return 2
    bench, about = Bench(chosen), machine()
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    if os.getloadavg()[0] > (os.cpu_count() or 1) / 4:
        print("others are at work on this machine: ratios are rough, above all those of overlapping work")
    try:
        for theme in themes:
            try:
                main = importlib.import_module(theme).main
            except ModuleNotFoundError as missing:  # PyTorch is optional
                print(f"{theme}: skipped: {missing}")
            else:
                run_theme(bench, theme, main)
    finally:
        bench.close()
    verdicts = [row.verdict for row in bench.rows]
    print(f"{verdicts.count('PASS')} targets met, {verdicts.count('SHORT')} short", end="")
    print(f", {len(bench.failures)} parts failed" if bench.failures else "")
    if chosen.save:
        print(f"saved in {save(bench, themes, about)}")
    return int(bool(bench.failures))


if __name__ == "__main__":
    sys.exit(main())
