"""Puts files of the repository into pages, links mended; shows "Example:" of docstrings as code."""

import inspect
import re
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[1]
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "bench/README.md": "bench.md",
    "kernel/README.md": "kernel.md",
    "postgres/README.md": "postgres.md",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace a line ``--8<-- "FILE"`` by the file; links lead to pages, since the file's folder is not theirs."""
    return re.sub(r'^--8<-- "(.+)"$', lambda found: _included(found[1]), markdown, flags=re.MULTILINE)


def _included(name: str) -> str:
    folder = (ROOT / name).parent

    def page(link: re.Match[str]) -> str:
        target = str((folder / link[1]).resolve().relative_to(ROOT))
        return f"]({PAGES.get(target, target.removeprefix('docs/'))})"

    return re.sub(r"\]\((?!https?://|#)([^)]+)\)", page, (ROOT / name).read_text(encoding="utf-8"))


def _imported(described: griffe.Object) -> Any:
    """Return an object of the package, None if it needs a package that is not installed."""
    try:
        module = import_module(described.module.path)
    except ImportError:
        return None
    return reduce(getattr, described.path.removeprefix(f"{described.module.path}.").split("."), module)


class Examples(griffe.Extension):
    """Renames the section of every docstring before it is read: Griffe knows "Examples:" only."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section of one, after adding the arguments that a class shares with others."""
        if obj.docstring is not None:
            if obj.is_class and any(str(one.value).startswith("documented(") for one in obj.decorators):
                found = _imported(obj)
                obj.docstring.value = obj.docstring.value if found is None else inspect.getdoc(found)
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Show the arguments of one that takes settings, which are the fields of a class."""
        if not any(str(one.value).startswith(("takes(", "init_takes(")) for one in func.decorators):
            return
        if (called := _imported(func)) is None:
            return
        func.parameters = griffe.Parameters(
            *(
                griffe.Parameter(
                    name,
                    annotation=inspect.formatannotation(one.annotation),
                    kind=griffe.ParameterKind(one.kind.description),
                    default=None if one.default is one.empty else repr(one.default),
                )
                for name, one in inspect.signature(called).parameters.items()
            )
        )
