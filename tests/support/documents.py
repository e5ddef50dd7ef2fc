"""The code blocks of the documents."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document, language):
    """Return the blocks of a language, in order."""
    return [code for kind, code in _BLOCK.findall((ROOT / document).read_text()) if kind == language]


def languages():
    """Return the languages of all blocks of all documents, by document."""
    documents = [
        "README.md",
        "postgres/README.md",
        *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
    ]
    return {name: [kind for kind, _ in _BLOCK.findall((ROOT / name).read_text())] for name in documents}


def commands(code):
    """Return the lines of a shell block, without remarks."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in code.splitlines())
    return [line for line in lines if line]
