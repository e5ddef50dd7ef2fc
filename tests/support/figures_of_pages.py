"""Published figures: each table of a page names the saved results that hold its figures.

A comment above a table names them: ``<!-- results: torch_loader, loader_notes -->``. Signs are ignored.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
PAGES = ("README.md", "docs/speed.md", "docs/peers.md", "docs/riffle-evidence.md", "docs/measured.md")
NUMBER = re.compile(r"(?<![\w.`])\d+(?:,\d{3})*(?:\.\d+)?(?: ?[kM](?!\w))?(?!\w)")
SOURCES = re.compile(r"<!-- results: ([\w, ]+) -->")
UNITS = {"k": 1e3, "M": 1e6}


@dataclass(frozen=True)
class Table:
    """A table of a page: its line, its numbers, and the results it names."""

    line: int
    numbers: list[str]
    results: list[str]

    def unsupported(self) -> list[str]:
        """Return the figures that no named result holds."""
        held = [value for name in self.results for value in values(name)]
        return [number for number in self.numbers if not is_held(number, held)]


def tables(text: str) -> list[Table]:
    """Return the tables of a page that have numbers outside their first column, which names the rows."""
    found, lines = list[Table](), text.splitlines()
    for at, line in enumerate(lines):
        if not line.startswith("|") or (at and lines[at - 1].startswith("|")):
            continue
        end = next((i for i in range(at, len(lines)) if not lines[i].startswith("|")), len(lines))
        cells = " ".join(line.split("|", 2)[2] for line in lines[at + 2 : end])
        cells = re.sub(r"\]\([^)]*\)|`[^`]*`", "", cells)
        above = next((words for words in reversed(lines[max(0, at - 2) : at]) if words), "")
        named = SOURCES.fullmatch(above)
        if numbers := NUMBER.findall(cells):
            found.append(Table(at + 1, numbers, re.findall(r"\w+", named[1]) if named else []))
    return found


def parse(number: str) -> tuple[float, float]:
    """Return a number's value without its sign, and half of its last digit."""
    digits = number.replace(",", "")
    unit = UNITS.get(digits[-1], 1.0)
    digits = digits.rstrip("kM ")
    return float(digits) * unit, 0.5 * unit * 10.0 ** -len(digits.partition(".")[2])


def is_held(number: str, held: list[float]) -> bool:
    """Return whether a result rounds to this number."""
    value, half = parse(number)
    return any(abs(value - other) <= 1.02 * half for other in held)


def values(name: str) -> list[float]:
    """Return all numbers of a saved result; R2 in percent also as a share."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return [parse(number)[0] for number in NUMBER.findall((RESULTS / f"{name}.md").read_text(encoding="utf-8"))]
    held = list[float]()
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        numbers = [
            abs(row["value"]),
            *(parse(number)[0] for number in NUMBER.findall(f"{row['measure']} {row['note']}")),
        ]
        held += numbers + [number / 100 for number in numbers if "R2" in row["unit"]]
    return held
