"""Print the saved results behind each page's tables, their days, and the number of later commits to the code.

python bench/figures.py
"""

import json
import subprocess
import sys

from common import HERE

sys.path.insert(0, str(HERE.parent / "tests" / "support"))
from figures_of_pages import PAGES, RESULTS, ROOT, tables

CODE = ("src", "kernel", "postgres")


def git(*words: str) -> str:
    """Return what git prints."""
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip()  # noqa: S607


def day(name: str) -> str:
    """Return the day of a saved result; of notes, that of their last commit."""
    path = RESULTS / f"{name}.json"
    if path.exists():
        return str(json.loads(path.read_text(encoding="utf-8"))["about"]["date"])
    return git("log", "-1", "--format=%as", "--", str(RESULTS / f"{name}.md"))


def main() -> int:
    """Print all tables and their results; return 1 if a figure has none."""
    wrong = 0
    for page in PAGES:
        for table in tables((ROOT / page).read_text(encoding="utf-8")):
            print(f"{page}:{table.line}: {len(table.numbers)} numbers")
            for name in table.results:
                commits = git("log", "--format=%h", f"--since={day(name)} 00:00", "--", *CODE).split()
                print(f"  {name}, {day(name)}, {len(commits)} commits to the code since")
            if missing := table.unsupported():
                wrong += 1
                print(f"  in no result: {', '.join(missing)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
