"""The formats that `convert` writes, by name and by the names of files."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from corgipile.conversion.writers.form import Form, Settings
from corgipile.conversion.writers.goals import goal_of
from corgipile.conversion.writers.parts import Parts
from corgipile.errors import BadArgument
from corgipile.outputs import PathLike, refuse_url
from corgipile.suggestions import did_you_mean
from corgipile.tables.arrow.writer import TABLE, Writer
from corgipile.tables.inputs import check_target

__all__ = ["check_out", "check_settings", "form_of", "target_of", "writer_of"]

ARROW = "arrow"


@cache
def forms() -> dict[str, Form]:
    """Return the formats, but for Arrow, that can be written."""
    from corgipile.conversion.writers import mds, parquet, tfrecord, webdataset  # noqa: PLC0415 - none for Arrow

    return {"mds": mds.FORM, "parquet": parquet.FORM, "tfrecord": tfrecord.FORM, "webdataset": webdataset.FORM}


def form_of(kind: str) -> Form:
    """Return a format as many files.

    Example:
        >>> form_of("arrow").names
        '{}-%05d.arrow'
    """
    from corgipile.conversion.writers import arrow  # noqa: PLC0415 - as above

    return arrow.FORM if kind == ARROW else forms()[kind]


def target_of(out: PathLike, to: str | None) -> str:
    """Return the format of an output.

    Raises:
        BadArgument: There is no such format, or the name tells another.

    Example:
        >>> target_of("rows-%06d.tar", None), target_of("rows", None), target_of("rows", "mds")
        ('webdataset', 'arrow', 'mds')
    """
    name = Path(out).name.lower()
    told = next((kind for kind, form in forms().items() if form.suffixes and name.endswith(form.suffixes)), None)
    if to is None:
        return told or ARROW
    if to != ARROW and to not in forms():
        names = [ARROW, *forms()]
        raise BadArgument(f"to is {to!r}; one of {', '.join(map(repr, names))} is right{did_you_mean(to, names)}")
    named = "arrow" if name.endswith((".arrow", ".feather", ".ipc")) else told
    if named not in (None, to):
        raise BadArgument(f"{out} would be {to} in spite of its name, which tells {named}; another name is needed")
    return to


def check_out(
    out: PathLike, kind: str, settings: Settings, *, inputs: Iterable[Any] = (), overwrite: bool = False
) -> None:
    """Raise, before any work is done, unless an output may be written and the settings are for it."""
    refuse_url(out)
    if kind == ARROW:
        check_target(out, TABLE, inputs=inputs, overwrite=overwrite)
        if settings.limit is not None:
            raise BadArgument(f"shard_size is for formats of many files; {out} is one file of Arrow")
        return
    form = forms()[kind]
    goal_of(out, form, inputs, overwrite=overwrite)
    check_settings(kind, form, settings)


def check_settings(kind: str, form: Form, settings: Settings) -> None:
    """Raise BadArgument if a format has no such codec, or no groups whose size could be said.

    Example:
        >>> check_settings("parquet", form_of("parquet"), Settings(compression="zstd"))
    """
    if settings.compression not in form.codecs:
        right = ", ".join(map(repr, form.codecs))
        raise BadArgument(f"compression is {settings.compression!r}; of {kind}, {right} can be")
    if settings.record_batch is not None and not form.grouped:
        raise BadArgument(f"record_batch is {settings.record_batch!r}, but {kind} has no groups of rows; leave it out")


def writer_of(
    out: PathLike,
    kind: str,
    schema: pa.Schema,
    settings: Settings,
    *,
    inputs: Iterable[Any] = (),
    overwrite: bool = False,
) -> Writer | Parts:
    """Return what writes rows, in a ``with`` statement."""
    if kind == ARROW:
        sizes = settings.record_batch, settings.compression
        return Writer(out, schema, *sizes, inputs=inputs, overwrite=overwrite)
    return Parts(out, forms()[kind], schema, settings, inputs=inputs, overwrite=overwrite)
