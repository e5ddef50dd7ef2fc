"""Output formats of `convert`, by name and file ending."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from corgipile.conversion.writers import arrow, mds, parquet, tfrecord, webdataset
from corgipile.conversion.writers.form import Form, Settings
from corgipile.conversion.writers.goals import goal_of
from corgipile.conversion.writers.parts import Parts
from corgipile.errors import BadArgument
from corgipile.outputs import PathLike, refuse_url
from corgipile.suggestions import did_you_mean
from corgipile.tables.formats.arrow.writer import TABLE, Writer
from corgipile.tables.inputs import check_target

__all__ = ["check_out", "check_settings", "form_of", "target_of", "writer_of"]

ARROW = "arrow"


@cache
def forms() -> dict[str, Form]:
    """Return the output formats other than Arrow."""
    return {"mds": mds.FORM, "parquet": parquet.FORM, "tfrecord": tfrecord.FORM, "webdataset": webdataset.FORM}


def form_of(kind: str) -> Form:
    """Return the format for many files.

    Example:
        >>> form_of("arrow").names
        '{}-%05d.arrow'
    """
    return arrow.FORM if kind == ARROW else forms()[kind]


def target_of(out: PathLike, to: str | None) -> str:
    """Return the format of an output; raise BadArgument if it is unknown, or differs from the name's ending.

    Example:
        >>> target_of("rows-%06d.tar", None), target_of("rows", None), target_of("rows", "mds")
        ('webdataset', 'arrow', 'mds')
    """
    name = Path(out).name.lower()
    detected = next((kind for kind, form in forms().items() if form.suffixes and name.endswith(form.suffixes)), None)
    if to is None:
        return detected or ARROW
    if to != ARROW and to not in forms():
        names = [ARROW, *forms()]
        raise BadArgument(f"to must be one of {', '.join(map(repr, names))}, got {to!r}{did_you_mean(to, names)}")
    named = "arrow" if name.endswith((".arrow", ".feather", ".ipc")) else detected
    if named not in (None, to):
        raise BadArgument(f"{out} must not end like {named} for to={to!r}: choose another name")
    return to


def check_out(
    out: PathLike, kind: str, settings: Settings, *, inputs: Iterable[Any] = (), overwrite: bool = False
) -> None:
    """Raise, before any work, unless the output may be written with these settings."""
    refuse_url(out)
    if kind == ARROW:
        check_target(out, TABLE, inputs=inputs, overwrite=overwrite)
        if settings.limit is not None:
            raise BadArgument(f"shard_size is for formats of many files, got it for {out}, one Arrow file")
        return
    form = forms()[kind]
    goal_of(out, form, inputs, overwrite=overwrite)
    check_settings(kind, form, settings)


def check_settings(kind: str, form: Form, settings: Settings) -> None:
    """Raise BadArgument for an unknown codec, or a row group size where the format has no row groups.

    Example:
        >>> check_settings("parquet", form_of("parquet"), Settings(compression="zstd"))
    """
    if settings.compression not in form.codecs:
        codecs = ", ".join(map(repr, form.codecs))
        raise BadArgument(f"compression of {kind} must be one of {codecs}, got {settings.compression!r}")
    if settings.record_batch is not None and not form.grouped:
        raise BadArgument(
            f"record_batch is not for {kind}, which has no row groups, got {settings.record_batch!r}: leave it out"
        )


def writer_of(
    out: PathLike,
    kind: str,
    schema: pa.Schema,
    settings: Settings,
    *,
    inputs: Iterable[Any] = (),
    overwrite: bool = False,
) -> Writer | Parts:
    """Return the writer of rows, to be used in a ``with`` statement."""
    if kind == ARROW:
        sizes = settings.record_batch, settings.compression
        return Writer(out, schema, *sizes, inputs=inputs, overwrite=overwrite)
    return Parts(out, forms()[kind], schema, settings, inputs=inputs, overwrite=overwrite)
