"""Shared parts of the figure scripts: options, saved results, Markdown tables, plots of curves."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
Curves = Mapping[str, Sequence[float]]


def arguments(about: str) -> argparse.ArgumentParser:
    """Return the options of all scripts: the folder of real data, a scale, whether to save."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the real data sets")
    parser.add_argument("--scale", type=int, default=1, help="so many times fewer rows")
    parser.add_argument("--save", action="store_true", help="write results/, in place of the last run's")
    return parser


def head(names: Sequence[str]) -> list[str]:
    """Return the first two lines of a table."""
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]


def save(name: str, results: Any, lines: Sequence[str]) -> Path:
    """Write numbers and table; return the path of the plot."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, results)) + "\n]\n")
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")
    return RESULTS / f"{name}.png"


def latest(name: str) -> list[dict[str, Any]]:
    """Return the last saved results of a script; empty if there are none."""
    path = RESULTS / f"{name}.json"
    return list(json.loads(path.read_text())) if path.exists() else []


def joined(
    name: str,
    lines: Sequence[str],
    results: Sequence[dict[str, Any]],
    key: Callable[[dict[str, Any]], Any],
    told: Callable[[dict[str, Any]], str],
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return lines and results of this run, and saved ones of the parts it left out."""
    known = {key(one): one for one in [*latest(name), *results]}
    return [*lines[:2], *map(told, known.values())], list(known.values())


def draw(
    panels: Mapping[tuple[str, str], Curves],
    path: Path,
    *,
    across: str,
    up: str,
    logarithmic: bool = False,
    xs: Sequence[float] | None = None,
) -> None:
    """Draw a grid of panels, by row and column, of curves by name; x is the epoch by default."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - optional

    rows, columns = (list(dict.fromkeys(key[at] for key in panels)) for at in (0, 1))
    size = (4.5 * len(columns), 2.4 * len(rows))
    figure, axes = plt.subplots(len(rows), len(columns), figsize=size, squeeze=False, sharex=True, layout="constrained")
    for (row, column), curves in panels.items():
        axis = axes[rows.index(row)][columns.index(column)]
        for name, values in curves.items():
            at = xs or range(1, 1 + len(values))
            (axis.semilogy if logarithmic else axis.plot)(at, values, label=name, linewidth=1)
        axis.set_title(f"{row}, {column}", fontsize=8)
        axis.tick_params(which="both", labelsize=7)
        if xs is None:  # there is no half of an epoch
            axis.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(*axes[0][-1].get_legend_handles_labels(), fontsize=7, loc="outside right upper")
    axes[-1][0].set_xlabel(across, fontsize=8)
    figure.supylabel(up, fontsize=8)
    figure.savefig(path, dpi=110)


def lines(
    panels: Mapping[tuple[str, str], Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    path: Path,
    *,
    across: str,
    up: str,
) -> None:
    """Draw stacked panels of curves by name, with their own x values."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - optional

    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 2.6 * len(panels)), squeeze=False, layout="constrained")
    for axis, ((row, column), curves) in zip(axes[:, 0], panels.items(), strict=True):
        for name, (x, y) in curves.items():
            axis.semilogx(x, y, label=name, linewidth=1, marker=".", markersize=3)
        axis.set_title(f"{row}, {column}", fontsize=8)
        axis.tick_params(which="both", labelsize=7)
    figure.legend(*axes[0][0].get_legend_handles_labels(), fontsize=7, loc="outside right upper")
    axes[-1][0].set_xlabel(across, fontsize=8)
    figure.supylabel(up, fontsize=8)
    figure.savefig(path, dpi=90)


def bars(panels: Mapping[tuple[str, str], Mapping[str, float]], path: Path, *, up: str) -> None:
    """Draw a grid of panels, by row and column, of bars by name."""
    import matplotlib as mpl  # noqa: PLC0415 - optional

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - optional

    rows, columns = (list(dict.fromkeys(key[at] for key in panels)) for at in (0, 1))
    size = (4.5 * len(columns), 1.9 * len(rows))
    figure, axes = plt.subplots(len(rows), len(columns), figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat:
        axis.set_visible(False)  # until it has something to show
    for (row, column), values in panels.items():
        axis = axes[rows.index(row)][columns.index(column)]
        axis.set_visible(True)
        axis.barh(list(values)[::-1], list(values.values())[::-1])
        axis.locator_params(axis="x", nbins=5)
        axis.set_title(f"{row}, {column}", fontsize=8)
        axis.tick_params(which="both", labelsize=7)
    figure.supxlabel(up, fontsize=8)
    figure.savefig(path, dpi=90)
