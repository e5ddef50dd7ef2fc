"""Files that a table reads, through all its wrappers."""

import functools
from collections.abc import Iterator
from typing import Any, Literal

__all__ = ["files_read"]


def files_read(table: Any) -> Iterator[Any]:
    """Yield the open files and the image folders that a table reads, through all its wrappers.

    They are objects whose class has ``is_source``; their ``path`` is a file or a folder. Objects whose class has a
    false ``is_source`` hold no other file than their table and are skipped.
    """
    seen, waiting = set(), [table]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        kind = _holds(type(item))  # type: ignore[arg-type]  # a type is hashable
        if kind == "files":
            yield item
        else:
            found = item if kind == "items" else getattr(item, "__dict__", {})
            inside = found.values() if isinstance(found, dict) else found
            waiting += (inner for inner in inside if _holds(type(inner)) != "nothing")  # type: ignore[arg-type]


@functools.cache  # a table of many files or columns has few types
def _holds(kind: type) -> Literal["files", "items", "attributes", "nothing"]:
    """Return whether objects of a type are files, or contain objects that may be."""
    if (source := getattr(kind, "is_source", None)) is not None:
        return "files" if source is True else "nothing"
    if issubclass(kind, list | tuple | dict):
        return "items"
    table = all(callable(getattr(kind, name, None)) for name in ("read", "cuts")) or hasattr(kind, "__getattr__")
    return "attributes" if table or kind.__module__.startswith("corgipile.tables.") else "nothing"
