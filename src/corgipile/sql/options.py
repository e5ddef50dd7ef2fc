"""The settings of a training in SQL: those of `corgipile.train` and their aliases."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from corgipile.errors import BadArgument
from corgipile.losses import NAMES, check_kind
from corgipile.settings import TrainArguments, declared
from corgipile.sizes import to_rows
from corgipile.sql.calls import model_name
from corgipile.sql.reader import Reader
from corgipile.sql.statements import Parameter, Train
from corgipile.sql.values import column_names, value
from corgipile.suggestions import did_you_mean

__all__ = ["ALIASES", "ORDER_SETTINGS", "SETTINGS", "SIZES", "assignments", "bind_settings", "loss_name", "setting"]

# Names in the paper, BigQuery and the PostgreSQL extension, and the name in Python.
ALIASES = {
    "max_epoch_num": "epochs",
    "max_epochs": "epochs",
    "num_epochs": "epochs",
    "max_iterations": "epochs",
    "learn_rate": "learning_rate",
    "l1_reg": "l1",
    "l2_reg": "l2",
    "block_size": "block",
    "buffer_size": "buffer",
    "holdout": "validation",
    "data_split_eval_fraction": "validation",
    "fit_intercept": "intercept",
}
REPLACED_BY = {
    "model": "name the model after TRAIN BY",
    "name": "INTO name stores the model",
    "save": "INTO name stores the model",
    "overwrite": "INTO name replaces a stored model",
    "test": "validation = 0.1 holds out rows",
}
SETTINGS = {
    name: one for name, one in declared(TrainArguments).items() if name not in REPLACED_BY and one.setting.about
}
SIZES = ("block", "buffer", "balance")  # fields of an order
ORDER_SETTINGS = ("classes", *SIZES)  # arguments of train that are not declared settings
COLUMNS = ("features", "text", "label", "labels", "group", "weight", "by")
MULTI_COLUMN = ("features", "text", "labels")  # may name several columns
SKIP = "skip"
LOSSES = {
    "logistic_reg": "logistic",
    "logistic_regression": "logistic",
    "lr": "logistic",
    "linear_reg": "linear",
    "linear_regression": "linear",
    "softmax_regression": "softmax",
}


def loss_name(reader: Reader) -> str:
    """Read a loss such as ``svm`` or ``quantile:0.9``, ignoring case."""
    begin = reader.at
    token = reader.next(f"a model: {', '.join(NAMES)}", "word", "name", "string")
    text = token.text
    if reader.accept(":"):
        text += ":" + reader.next("the parameter of the model, a number", "number").text
    name = LOSSES.get(text.lower(), text.lower())
    try:
        check_kind(name)
    except BadArgument as error:
        raise reader.error(str(error), begin) from None
    return name


def assignments(reader: Reader, stops: Sequence[str]) -> Iterator[str]:
    """Yield setting names; the caller must read each value before it asks for the next name."""
    while True:
        token = reader.next("the name of a setting", "word", "name", "string")
        reader.expect("=", what=f"= and a value after {token.text}")
        yield token.text.lower()
        if reader.accept(","):
            continue
        if reader.peek() is not None and not any(reader.next_is(word) for word in stops):
            ends = f"{', '.join(stops)} or the end of the statement" if stops else ")"
            raise reader.unexpected(f", or {ends}", stops)
        return


def setting(reader: Reader, written: str, settings: dict[str, Any]) -> None:
    """Read the value of a setting and add it to `settings`."""
    at, name = reader.at - 2, ALIASES.get(written, written)
    if written in REPLACED_BY:
        raise reader.error(f"{written} is not a setting in SQL: {REPLACED_BY[written]}", at)
    if name not in SETTINGS and name not in ORDER_SETTINGS:
        names = [*SETTINGS, *ORDER_SETTINGS, *ALIASES]
        hint = did_you_mean(written, names) or f"; settings are {', '.join(names)}"
        raise reader.error(f"there is no setting {written!r}{hint}", at)
    if name in settings:
        also = f" ({written} is an alias)" if written != name else ""
        raise reader.error(f"{name} is set twice{also}", at)
    begin = reader.at
    settings[name] = _read(reader, name)
    try:
        settings[name] = check_setting(name, settings[name])
    except BadArgument as error:
        raise reader.error(str(error), begin) from None


def _read(reader: Reader, name: str) -> Any:
    token = reader.peek()
    if name == "warm_start" and token is not None and token.kind in ("word", "name", "string"):
        return model_name(reader)
    value_next = token is None or token.matches("TRUE", "FALSE", "?", ":") or token.kind == "place"
    if name == "balance" and not value_next:
        what = "true, false, content or the name of a column"
        return reader.script.column(reader.next(what, "word", "name", "string"))
    return column_names(reader) if name in COLUMNS else value(reader)


def check_setting(name: str, given: Any) -> Any:
    """Check the value of a setting and convert it to Python's type.

    Example:
        >>> check_setting("epochs", 20), check_setting("block", "10MB"), check_setting("label", ["y"])
        (20, '10MB', 'y')
    """
    if isinstance(given, Parameter):
        return given
    if name in COLUMNS and name not in MULTI_COLUMN and isinstance(given, list | tuple):
        if len(given) != 1:
            raise BadArgument(f"{name} must be the name of one column, got {len(given)}")
        given = given[0]
    return CHECKS[name](given, name) if name in CHECKS else SETTINGS[name].checked(given, name)


def _names(given: Any, name: str) -> tuple[str, ...]:
    given = [given] if isinstance(given, str) else given
    if not isinstance(given, list | tuple) or not given or not all(isinstance(one, str) for one in given):
        raise BadArgument(f"{name} must be the name of a column or a list of them, got {given!r}")
    return tuple(given)


def _labels(given: Any, name: str) -> Any:
    return None if given is None else _names(given, name)


def _interactions(given: Any, name: str) -> Any:
    """Check feature crosses, which may also be written as city:device."""
    given = [given] if isinstance(given, str) else given
    if isinstance(given, list):
        given = [tuple(one.split(":")) if isinstance(one, str) else one for one in given]
    return SETTINGS[name].checked(given, name)


def _size(given: Any, name: str) -> Any:
    to_rows(given, 1, 1.0, name)
    return given


def _balance(given: Any, _: str) -> Any:
    if not isinstance(given, bool | str):
        raise BadArgument(f"balance must be true, false, content or the name of a column, got {given!r}")
    return given


def _classes(given: Any, _: str) -> list[Any]:
    one = given if isinstance(given, list | tuple) else []
    if not one or not (all(isinstance(x, str) for x in one) or all(isinstance(x, int | float) for x in one)):
        raise BadArgument(f"classes must be a list of numbers or of text, got {given!r}")
    return list(one)


def _model(given: Any, _: str) -> Any:
    if not isinstance(given, str | None):
        raise BadArgument(f"warm_start must be the name of a model, got {given!r}")
    return given


CHECKS = {
    "features": _names,
    "labels": _labels,
    "interactions": _interactions,
    "block": _size,
    "buffer": _size,
    "balance": _balance,
    "warm_start": _model,
    "classes": _classes,
}


def bind_settings(train: Train, values: Sequence[Any] | Mapping[str, Any] = ()) -> Train:
    """Replace the parameters of a training's settings by values, and move features, label and warm start to fields.

    Example:
        >>> from corgipile.sql.grammar import parse
        >>> train, = parse("SELECT * FROM t TRAIN BY svm WITH epochs = ?, label = :y")
        >>> bind_settings(train, {"1": 3, "y": "z"}).label
        'z'
    """
    settings = {
        name: check_setting(name, given.of(values)) if isinstance(given, Parameter) else given
        for name, given in train.settings.items()
    }
    if settings.get("missing") == SKIP:  # as in the PostgreSQL extension
        if settings.get("on_bad", SKIP) != SKIP:
            raise BadArgument("missing = 'skip' contradicts on_bad = 'raise'; give one of them")
        settings["on_bad"] = settings.pop("missing")
    fields = {name: settings.pop(name) for name in ("features", "label", "warm_start") if name in settings}
    return replace(train, settings=settings, **fields)
