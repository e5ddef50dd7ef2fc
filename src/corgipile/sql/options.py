"""The settings of a training as SQL spells them: those of `corgipile.train`, and other names of them."""

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

__all__ = ["ALIASES", "MORE", "SETTINGS", "SIZES", "assignments", "loss_name", "setting", "settled"]

# How the paper, BigQuery and our extension call what has a name in Python.
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
ELSEWHERE = {
    "model": "name the model behind TRAIN BY",
    "name": "INTO name stores the model",
    "save": "INTO name stores the model",
    "overwrite": "INTO name stores the model, in place of an earlier one",
    "test": "validation = 0.1 holds rows out",
}
SETTINGS = {name: one for name, one in declared(TrainArguments).items() if name not in ELSEWHERE and one.setting.about}
SIZES = ("block", "buffer", "balance")  # what an order has
MORE = ("classes", *SIZES)  # an argument of train that is no setting
COLUMNS = ("features", "text", "label", "labels", "group", "weight", "by")
SEVERAL = ("features", "text", "labels")  # of which there may be more than one
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
    """Read a loss, ``svm`` or ``quantile:0.9``, in whatever case.

    Raises:
        BadStatement: There is none of that name.
    """
    begin = reader.at
    token = reader.next(f"a model: {', '.join(NAMES)}", "word", "name", "string")
    text = token.text
    if reader.takes(":"):
        text += ":" + reader.next("the parameter of the model, a number", "number").text
    name = LOSSES.get(text.lower(), text.lower())
    try:
        check_kind(name)
    except BadArgument as error:
        raise reader.wrong(str(error), begin) from None
    return name


def assignments(reader: Reader, stops: Sequence[str]) -> Iterator[str]:
    """Read names of settings, each up to its value, which whoever asks for the next one has read.

    Raises:
        BadStatement: One is missing, or what follows its value is none of these words.
    """
    while True:
        token = reader.next("the name of a setting", "word", "name", "string")
        reader.needs("=", what=f"= and a value after {token.text}")
        yield token.text.lower()
        if reader.takes(","):
            continue
        if reader.peek() is not None and not any(reader.sees(word) for word in stops):
            raise reader.expected(f", or {', '.join(stops)} or the end of the statement" if stops else ", or )", stops)
        return


def setting(reader: Reader, written: str, found: dict[str, Any]) -> None:
    """Read the value of a setting into others.

    Raises:
        BadStatement: There is no such setting, it has a value already, or this one does not serve.
    """
    at, name = reader.at - 2, ALIASES.get(written, written)
    if written in ELSEWHERE:
        raise reader.wrong(f"{written} is no setting here: {ELSEWHERE[written]}", at)
    if name not in SETTINGS and name not in MORE:
        names = [*SETTINGS, *MORE, *ALIASES]
        hint = did_you_mean(written, names) or f"; there are {', '.join(names)}"
        raise reader.wrong(f"there is no setting {written!r}{hint}", at)
    if name in found:
        also = f" ({written} is another name of it)" if written != name else ""
        raise reader.wrong(f"{name} is set twice{also}", at)
    begin = reader.at
    found[name] = _read(reader, name)
    try:
        found[name] = checked(name, found[name])
    except BadArgument as error:
        raise reader.wrong(str(error), begin) from None


def _read(reader: Reader, name: str) -> Any:
    token = reader.peek()
    if name == "warm_start" and token is not None and token.kind in ("word", "name", "string"):
        return model_name(reader)
    if name == "balance" and token is not None and not token.says("TRUE", "FALSE", "?", ":") and token.kind != "place":
        return reader.script.column(
            reader.next("true, false, content or the name of a column", "word", "name", "string")
        )
    return column_names(reader) if name in COLUMNS else value(reader)


def checked(name: str, given: Any) -> Any:
    """Return the value of a setting as Python has it.

    Raises:
        BadArgument: It does not serve.

    Example:
        >>> checked("epochs", 20), checked("block", "10MB"), checked("label", ["y"])
        (20, '10MB', 'y')
    """
    if isinstance(given, Parameter):
        return given
    if name in COLUMNS and name not in SEVERAL and isinstance(given, list | tuple):
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
    """Read crosses, also such as city:device."""
    given = [given] if isinstance(given, str) else given
    parts = (
        [tuple(one.split(":")) if isinstance(one, str) else one for one in given] if isinstance(given, list) else given
    )
    return SETTINGS[name].checked(parts, name)


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


def settled(train: Train, values: Sequence[Any] | Mapping[str, Any] = ()) -> Train:
    """Return a training whose settings have their values, those of features, label and warm start where they belong.

    Args:
        train: A training as it was read.
        values: What is given for its parameters.

    Raises:
        BadArgument: A value is missing, or does not serve.

    Example:
        >>> from corgipile.sql.grammar import parse
        >>> settled(parse("SELECT * FROM t TRAIN BY svm WITH epochs = ?, label = :y")[0], {"1": 3, "y": "z"}).label
        'z'
    """
    settings = {
        name: checked(name, given.of(values)) if isinstance(given, Parameter) else given
        for name, given in train.settings.items()
    }
    if settings.get("missing") == SKIP:  # as PostgreSQL's extension says it
        if settings.get("on_bad", SKIP) != SKIP:
            raise BadArgument("missing is 'skip', which leaves rows out, and on_bad is 'raise'; give one of them")
        settings["on_bad"] = settings.pop("missing")
    places = {name: settings.pop(name) for name in ("features", "label", "warm_start") if name in settings}
    return replace(train, settings=settings, **places)
