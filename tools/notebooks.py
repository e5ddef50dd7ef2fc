"""Writes each tutorial as a notebook: `python tools/notebooks.py FOLDER`."""

import json
import re
import sys
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook(page: str) -> dict[str, Any]:
    """Return a page as a notebook: its Python and shell blocks are cells that run, the rest is text."""
    cells, at = [], 0
    for block in BLOCK.finditer(page):
        cells.append(_cell("markdown", page[at : block.start()]))
        code = block[2] if block[1] == "python" else re.sub(r"^(?=\w)", "!", block[2], flags=re.MULTILINE)
        cells.append(_cell("code", code) | {"outputs": [], "execution_count": None})
        at = block.end()
    cells.append(_cell("markdown", page[at:]))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    cells = [cell | {"id": f"cell-{place}"} for place, cell in enumerate(cells) if cell["source"]]
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _cell(kind: str, text: str) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": text.strip("\n")}


def main() -> None:
    """Write all notebooks to the folder."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(TUTORIALS.glob("*.md")):
        target = folder / f"{path.stem}.ipynb"
        target.write_text(json.dumps(notebook(path.read_text(encoding="utf-8")), indent=1) + "\n", encoding="utf-8")
        print(target)


if __name__ == "__main__":
    main()
