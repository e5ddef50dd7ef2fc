"""Memory budget: peak resident memory of each format, order and host, above that of an idle process."""

import json
import sys
from typing import Any

from common import HERE, Bench, alone, child

sys.path.insert(0, str(HERE.parent / "tests" / "support"))
import budgets


def fresh(*words: str) -> dict[str, Any]:
    """Run a case in a fresh interpreter."""
    return child("budget.py", *words)


def shape_part(bench: Bench, shape: str) -> None:
    """Measure all hosts and orders over one shape of rows."""
    path, tiny = budgets.tables(bench.work, shape, bench.pick(256 << 20, 96 << 20))
    for host, order in budgets.cases(shape):
        for memory in ("16MB",) if bench.quick else ("16MB", "64MB"):
            growth, allowed, note = budgets.measure(path, tiny, host, order, memory, fresh)
            what = f"{shape}: {host} {order} {memory}".strip()
            bench.report(what, growth, "MiB", f"<= {allowed:.0f}" if allowed else "", note)


def main(bench: Bench) -> None:
    """Run all parts."""
    for shape in budgets.ALL:
        bench.part(shape, lambda bench, shape=shape: shape_part(bench, shape))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(budgets.child_measure(*sys.argv[2:])))
    else:
        alone("budget", main)
