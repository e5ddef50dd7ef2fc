"""Completion words: keywords, settings and the session's names."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import get_args

from corgipile.orders import NAMES
from corgipile.settings import LOSSES
from corgipile.sizes import OnBad
from corgipile.sql import options
from corgipile.sql.engines.shared import Engine
from corgipile.sql.statements import ShowModels
from corgipile.tables.databases import quoted

__all__ = ["KEYWORDS", "SETTINGS", "Known", "files", "in_quotes", "models", "table_name", "values_of"]

_WORDS = """
ADD ALL ALTER ANALYZE AND AS ASC ATTACH BEGIN BETWEEN BY CASE CAST COLUMN COMMIT COPY COUNT CREATE CROSS
DELETE DESC DESCRIBE DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FROM FULL GROUP HAVING IF ILIKE IN
INDEX INNER INSERT INTERSECT INTO IS JOIN LABEL LEFT LIKE LIMIT ML.ADVANCED_WEIGHTS ML.CALIBRATION
ML.CONFUSION_MATRIX ML.EVALUATE ML.PREDICT ML.ROC_CURVE ML.TRAINING_INFO ML.WEIGHTS MODEL MODELS NOT NULL OFFSET
ON OPTIONS OR ORDER OUTER OVER PARTITION PREDICT RENAME REPLACE RETURNING RIGHT ROLLBACK SCHEMA SELECT SET SHOW
TABLE TEMPORARY THEN TO TRAIN TRUE UNION UNIQUE UPDATE USING VALUES VIEW WHEN WHERE WINDOW WITH
"""
KEYWORDS = frozenset(_WORDS.split())
SETTINGS = sorted({*options.SETTINGS, *options.ORDER_SETTINGS, *options.ALIASES})


def values_of(setting: str) -> list[str]:
    """Return the words that are values of a setting.

    Example:
        >>> values_of("on_bad"), values_of("seed")
        (['raise', 'skip'], [])
    """
    words = {"order": ["auto", *NAMES], "on_bad": sorted(get_args(OnBad)), "model": models()}
    words |= {"encode": ["onehot", "ordinal", "hash:256"], "missing": ["error", "mean"]}
    declared_setting = options.SETTINGS.get(options.ALIASES.get(setting, setting))
    logical = declared_setting is not None and bool in (declared_setting.kind, *get_args(declared_setting.kind))
    return words.get(setting, ["false", "true"] if logical else [])


def models() -> list[str]:
    """Return the model types that can be trained, without parameters."""
    return [name.partition(":")[0] for name in LOSSES]


class Known:
    """Cache of a session's tables, columns and models, refreshed after each statement."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def forget(self) -> None:
        """Clear the cache."""
        for name in ("tables", "models"):
            self.__dict__.pop(name, None)

    @cached_property
    def tables(self) -> dict[str, list[str]]:
        """The columns of each table; empty if the engine cannot answer now."""
        with suppress(Exception):  # a lost connection or failed transaction: the next statement reports it
            return self._engine.tables()
        return {}

    @cached_property
    def models(self) -> list[str]:
        """The names of the stored models."""
        with suppress(Exception):  # the next statement reports it
            batches = self._engine.show(ShowModels()).batches
            return [str(name) for batch in batches for name in batch.column("name").to_pylist()]
        return []


def in_quotes(name: str) -> str:
    """Quote a name for SQL if it needs quotes.

    Example:
        >>> in_quotes("rows"), in_quotes("My table"), in_quotes('a"b')
        ('rows', '"My table"', '"a""b"')
    """
    plain = name.isascii() and name.isidentifier() and name == name.lower() and name.upper() not in KEYWORDS
    return name if plain else quoted(name)


def table_name(name: str) -> str:
    """Quote the name of a table with its optional schema.

    Example:
        >>> table_name("My schema.flights")
        '"My schema".flights'
    """
    return ".".join(map(in_quotes, name.split(".", 1)))


def files(begun: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths that complete the input, folders with a slash, and whether each is a folder."""
    folder, slash, start = begun.rpartition("/")
    with suppress(OSError, ValueError), os.scandir(Path(folder + slash or ".").expanduser()) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.name.startswith(start) and (start or not entry.name.startswith(".")):
                is_folder = entry.is_dir()
                yield folder + slash + entry.name + "/" * is_folder, is_folder
