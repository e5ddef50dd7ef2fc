"""Calls among the C files of the extension, from the sources."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "postgres" / "src"
DEFINITION = re.compile(r"^(?!static|extern|#|typedef)\w[\w \*]*?\b\*?(corgi\w+)\([^;{]*\)\s*\{", re.MULTILINE)
SILENT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)  # comments and strings


def calls() -> dict[str, set[str]]:
    """Return for each file which other files define the functions that it names."""
    texts = {path.name: SILENT.sub("", path.read_text()) for path in sorted(FOLDER.glob("*.c"))}
    defined = {function: name for name, text in texts.items() for function in DEFINITION.findall(text)}
    return {
        name: {defined[word] for word in re.findall(r"\bcorgi\w+", text) if word in defined} - {name}
        for name, text in texts.items()
    }


def included() -> dict[str, set[str]]:
    """Return for each file which headers of the extension it includes itself."""
    own = {path.name for path in FOLDER.glob("*.h")}
    return {
        path.name: own & set(re.findall(r'#include "([\w.]+)"', path.read_text()))
        for path in sorted(FOLDER.glob("*.[ch]"))
    }
