"""Which of the arrays in a group are columns: all that have as many rows, or those that are named."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from corgipile.errors import BadArgument, BadSchema, MissingColumn
from corgipile.nesting import check_depth
from corgipile.suggestions import did_you_mean, listed

__all__ = ["ColumnChoice", "arrays_below", "by_name", "choose_arrays", "group_at"]

ColumnChoice = Sequence[str] | Mapping[str, str] | None  # columns= of open: paths, or names and their paths
MOST_LISTED = 6
MAX_GROUPS = 1 << 17
MAX_LINKS = 16  # in a chain, as in the library


def is_group(node: Any) -> bool:
    """Say whether something is a group of HDF5 or Zarr."""
    return hasattr(node, "keys")


def group_at(root: Any, group: str | None, path: str) -> Any:
    """Return a group, or an array, by its path in a file.

    Raises:
        MissingColumn: There is none.
    """
    if group is None or not group.strip("/"):
        return root
    if not isinstance(group, str):
        raise BadArgument(f"group must be the path of a group, got {group!r}")
    found = lookup(root, group)
    if found is None:
        raise MissingColumn(f"{path} has no group {group!r}; it has {listed(list(root.keys()))}")
    return found


def lookup(group: Any, name: str, links: int = 0) -> Any:
    """Return what a group has under a path, None if nothing.

    Args:
        group: The group.
        name: The path.
        links: The number of links followed so far.

    Raises:
        BadSchema: There is a link to another file.
    """
    try:
        if not hasattr(group, "id"):
            return group[name.strip("/")]
        for step in filter(None, name.split("/")):  # of h5py
            group = _step(group, step, links) if is_group(group) else None
    except KeyError:
        return None
    return group


def _step(group: Any, name: str, links: int) -> Any:
    """Return a member of an h5py group; checks links before following them, which the library does not."""
    link = group.get(name, getlink=True)
    if hasattr(link, "filename"):
        raise BadSchema(f"{name!r} is a link to {link.path!r} in another file, {link.filename!r}; open that one")
    if not hasattr(link, "path"):
        return group[name]
    start = group.file if link.path.startswith("/") else group
    return lookup(start, link.path, links + 1) if links < MAX_LINKS else None


def arrays_below(
    group: Any, prefix: str = "", above: tuple[Any, ...] = (), visits: Iterator[int] | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield the arrays with rows in a group and in the groups inside of it, by their paths.

    Args:
        group: The group.
        prefix: Its path.
        above: The groups that it lies in.
        visits: Numbers the groups visited.

    Raises:
        BadSchema: A group links to one above it, or groups are too deep or too many.
    """
    above, visits = (*above, group), visits or count()
    check_depth(len(above), f"group {prefix!r}", BadSchema)
    if next(visits) > MAX_GROUPS:
        raise BadSchema(f"a file must have at most {MAX_GROUPS} groups, links counted; name arrays by columns=")
    names = list(group.keys())
    for name in names if isinstance(group, Mapping) else sorted(names):  # Zarr lists a folder
        node = lookup(group, name)
        if node is None:  # a link to nowhere
            continue
        if is_group(node):
            if node in above:
                raise BadSchema(f"{prefix + name!r} is a link to a group that contains it; name arrays by columns=")
            yield from arrays_below(node, f"{prefix}{name}/", above, visits)
        elif getattr(node, "shape", None):
            yield f"{prefix}{name}", node


def by_name(columns: ColumnChoice) -> dict[str, str] | None:
    """Return what columns are called, and where they lie; None where that is not said.

    Raises:
        BadArgument: It is no list of paths and no dictionary of them, or one is there twice.

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
        raise BadArgument(f"columns must be a list of names, or a dictionary from names to paths; got {columns!r}")
    if isinstance(wanted, dict):
        return wanted
    if len(set(wanted)) < len(wanted):
        raise BadArgument(f"columns names one twice: {wanted}")
    return dict(zip(wanted, wanted, strict=True))


def choose_arrays(group: Any, columns: ColumnChoice, path: str) -> dict[str, Any]:
    """Return the arrays that are columns, by name.

    Args:
        group: The group.
        columns: Which; None for all there are.
        path: The file, for errors.

    Raises:
        MissingColumn: There is no such array.
        BadSchema: There are none, or they are of different lengths.
    """
    named = by_name(columns)
    if named is None:
        found = dict(arrays_below(group))
        folders = {name.rpartition("/")[0] for name in found}
        if len(folders) == 1:  # all in one group: names say enough
            found = {name.rpartition("/")[2]: array for name, array in found.items()}
    else:
        found = {name: _array_at(group, place, path) for name, place in named.items()}
    if not found:
        raise BadSchema(f"{path} has no array with rows, so there is nothing to read")
    _check_lengths(found, path)
    return found


def _array_at(group: Any, name: str, path: str) -> Any:
    found = lookup(group, name)
    if found is None or is_group(found) or not getattr(found, "shape", None):
        there = [one for one, _ in arrays_below(group)]
        raise MissingColumn(
            f"{path} has no array {name!r} with rows; it has {listed(there)}{did_you_mean(name, there)}"
        )
    return found


def _check_lengths(found: Mapping[str, Any], path: str) -> None:
    lengths: dict[int, list[str]] = defaultdict(list)
    for name, array in found.items():
        lengths[int(array.shape[0])].append(name)
    if len(lengths) == 1:
        return
    told = "; ".join(f"{length} rows: {listed(names)}" for length, names in list(lengths.items())[:MOST_LISTED])
    most = max(lengths.values(), key=len)
    raise BadSchema(
        f"{path} has arrays of different lengths, which are no columns of one table: {told}. Say which are: "
        f"columns={most[:MOST_LISTED]!r}, or the group they are in: group="
    )
