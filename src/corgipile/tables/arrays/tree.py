"""Selects the arrays of a group that become columns: the named ones, or all of equal length."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from corgipile.errors import BadArgument, BadSchema, MissingColumn
from corgipile.nesting import check_depth
from corgipile.suggestions import did_you_mean, listed

__all__ = ["ColumnChoice", "arrays_below", "by_name", "choose_arrays", "group_at"]

ColumnChoice = Sequence[str] | Mapping[str, str] | None  # columns= of open: paths, or names mapped to paths
MAX_LISTED = 6  # names in an error message
MAX_GROUPS = 1 << 17  # groups visited in a file
MAX_LINKS = 16  # links in a chain, as in h5py


def is_group(node: Any) -> bool:
    """Return whether a node is a group of HDF5 or Zarr."""
    return hasattr(node, "keys")


def group_at(root: Any, group: str | None, path: str) -> Any:
    """Return a group or array by its path in a file.

    Raises:
        MissingColumn: The file has no such node.
    """
    if group is None or not group.strip("/"):
        return root
    if not isinstance(group, str):
        raise BadArgument(f"group must be the path of a group, got {group!r}")
    node = lookup(root, group)
    if node is None:
        raise MissingColumn(f"{path} has no group {group!r}; it has {listed(list(root.keys()))}")
    return node


def lookup(group: Any, name: str, links: int = 0) -> Any:
    """Return the node at a path in a group, None if it is missing.

    Args:
        group: The group.
        name: The path.
        links: Links followed so far.

    Raises:
        BadSchema: The path has a link to another file.
    """
    try:
        if not hasattr(group, "id"):
            return group[name.strip("/")]
        for step in filter(None, name.split("/")):  # h5py
            group = _step(group, step, links) if is_group(group) else None
    except KeyError:
        return None
    return group


def _step(group: Any, name: str, links: int) -> Any:
    """Return a member of an h5py group; unlike h5py, check links before following them."""
    link = group.get(name, getlink=True)
    if hasattr(link, "filename"):
        raise BadSchema(f"{name!r} links to {link.path!r} in another file, {link.filename!r}; open that file")
    if not hasattr(link, "path"):
        return group[name]
    start = group.file if link.path.startswith("/") else group
    return lookup(start, link.path, links + 1) if links < MAX_LINKS else None


def arrays_below(
    group: Any, prefix: str = "", above: tuple[Any, ...] = (), visits: Iterator[int] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield the paths and arrays with rows in a group and its subgroups.

    Args:
        group: The group.
        prefix: Its path.
        above: Its parent groups.
        visits: Numbers the groups visited.

    Raises:
        BadSchema: A group links to one above it, or groups are too deep or too many.
    """
    above, visits = (*above, group), visits or count()
    check_depth(len(above), f"group {prefix!r}", BadSchema)
    if next(visits) > MAX_GROUPS:
        raise BadSchema(f"a file must have at most {MAX_GROUPS} groups, links counted; name arrays by columns=")
    names = list(group.keys())
    for name in names if isinstance(group, Mapping) else sorted(names):  # Zarr lists a folder in any order
        node = lookup(group, name)
        if node is None:  # a dangling link
            continue
        if is_group(node):
            if node in above:
                raise BadSchema(f"{prefix + name!r} links to a group that contains it; name arrays by columns=")
            yield from arrays_below(node, f"{prefix}{name}/", above, visits)
        elif getattr(node, "shape", None):
            yield f"{prefix}{name}", node


def by_name(columns: ColumnChoice) -> dict[str, str] | None:
    """Return the paths of columns by name; None if ``columns`` is None.

    Raises:
        BadArgument: It is neither a list nor a dictionary of paths, or has a path twice.

    Example:
        >>> by_name(["x", "train/y"]), by_name({"label": "train/y"})
        ({'x': 'x', 'train/y': 'train/y'}, {'label': 'train/y'})
    """
    if columns is None:
        return None
    wanted = dict(columns) if isinstance(columns, Mapping) else None if isinstance(columns, str) else list(columns)
    if not wanted or not all(
        isinstance(name, str) for name in [*wanted, *(dict(columns).values() if isinstance(columns, Mapping) else ())]
    ):
        raise BadArgument(f"columns must be a list of names, or a dictionary from names to paths, got {columns!r}")
    if isinstance(wanted, dict):
        return wanted
    if len(set(wanted)) < len(wanted):
        raise BadArgument(f"columns must not have a name twice, got {wanted}")
    return dict(zip(wanted, wanted, strict=True))


def choose_arrays(group: Any, columns: ColumnChoice, path: str) -> dict[str, Any]:
    """Return the arrays that are columns, by name.

    Args:
        group: The group.
        columns: The columns; None for all arrays.
        path: The file, for error messages.

    Raises:
        MissingColumn: An array is missing.
        BadSchema: There are no arrays, or they differ in length.
    """
    named = by_name(columns)
    if named is None:
        arrays = dict(arrays_below(group))
        folders = {name.rpartition("/")[0] for name in arrays}
        if len(folders) == 1:  # all in one group: names suffice
            arrays = {name.rpartition("/")[2]: array for name, array in arrays.items()}
    else:
        arrays = {name: _array_at(group, place, path) for name, place in named.items()}
    if not arrays:
        raise BadSchema(f"{path} must have an array with rows, got none")
    _check_lengths(arrays, path)
    return arrays


def _array_at(group: Any, name: str, path: str) -> Any:
    node = lookup(group, name)
    if node is None or is_group(node) or not getattr(node, "shape", None):
        available = [path_name for path_name, _ in arrays_below(group)]
        raise MissingColumn(
            f"{path} has no array {name!r} with rows; it has {listed(available)}{did_you_mean(name, available)}"
        )
    return node


def _check_lengths(arrays: Mapping[str, Any], path: str) -> None:
    lengths: dict[int, list[str]] = defaultdict(list)
    for name, array in arrays.items():
        lengths[int(array.shape[0])].append(name)
    if len(lengths) == 1:
        return
    summary = "; ".join(f"{length} rows: {listed(names)}" for length, names in list(lengths.items())[:MAX_LISTED])
    most = max(lengths.values(), key=len)
    raise BadSchema(
        f"{path}: the columns of a table must have equal lengths, got {summary}; choose some: "
        f"columns={most[:MAX_LISTED]!r}, or their group: group="
    )
