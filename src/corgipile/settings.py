"""Training settings, each declared once for all hosts: type, default, check, and help text."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from reprlib import repr as short
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, get_args

from corgipile import _kernel
from corgipile.errors import BadArgument
from corgipile.lazy import lazy
from corgipile.losses import check_kind
from corgipile.orders import Order, named
from corgipile.sizes import MAX_EPOCH, OnBad, Size, choice, parse_bytes, real, whole, yes_or_no
from corgipile.steps import step_of

if TYPE_CHECKING:
    from corgipile.features import fit, fit_hashed
    from corgipile.linear.model import Model
else:  # these take longer to import than the rest of the settings
    fit, fit_hashed = lazy("corgipile.features.fit"), lazy("corgipile.features.fit_hashed")

__all__ = [
    "BLOCK",
    "CALL",
    "TEST",
    "Declared",
    "Setting",
    "Settings",
    "TrainArguments",
    "TrainSettings",
    "changed",
    "declared",
]

MAX_BATCH = 1 << 31  # rows of one update
Solver = Literal["sgd", "dual", "newton", "auto"]
LOSSES = dict.fromkeys(f"{name}, {name}:{takes.upper()}" if takes else name for name, *_, takes, _ in _kernel.LOSSES)

STEPS = [name for name, *_ in _kernel.STEPS]


class Setting(NamedTuple):
    """A setting's help text, in one line, and its check; without a help text, commands have no such option."""

    about: str
    check: Callable[[Any, str], Any] = lambda value, _: value


class Declared(NamedTuple):
    """A declared setting with its type and default."""

    kind: Any
    default: Any
    setting: Setting

    @property
    def optional(self) -> bool:
        """Return whether the setting may be None."""
        return self.default is None or NoneType in get_args(self.kind)

    def checked(self, value: Any, name: str) -> Any:
        """Return a value in the type that is used; raise BadArgument if it is out of range."""
        return None if value is None and self.optional else self.setting.check(value, name)


def _kind(value: Any, _: str) -> Any:
    check_kind(value)
    return value


def _step(value: Any, _: str) -> Any:
    return step_of(value).name


def _is(kind: Any, words: str) -> Callable[[Any, str], Any]:
    """Return a check of a value's type, which messages describe by ``words``."""

    def check(value: Any, name: str) -> Any:
        if not isinstance(value, kind):
            raise BadArgument(f"{name} must be {words}, got {value!r}")
        return value

    return check


def _order(value: Any, _: str) -> Any:
    named(value)
    return value


def _encode(value: Any, _: str) -> Any:
    if isinstance(value, str | Mapping):  # for other types, errors about columns are more specific
        fit.check_encode(value)
    return value


def _text(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value or not all(isinstance(part, str) for part in value):
        raise BadArgument(f"{name} must be the name of a column or a list of them, got {value!r}")
    return tuple(value)


def _interactions(value: Any, name: str) -> Any:
    if (
        not isinstance(value, list | tuple)
        or not value
        or not all(isinstance(one, str | list | tuple) for one in value)
    ):
        raise BadArgument(f'{name} must be a list of columns to cross, such as [("city", "device")], got {value!r}')
    return fit_hashed.terms_of(None, value)


def _memory(value: Any, name: str) -> Any:
    parse_bytes(value, name, whole=1.0)
    return value


def _class_weight(value: Any, name: str) -> Any:
    """Return ``"balanced"``, or weights by class as text."""
    if value == "balanced":
        return value
    if not isinstance(value, Mapping) or not value:
        raise BadArgument(
            f'{name} must be "balanced" or numbers by class, such as {{"no": 1, "yes": 20}}, got {value!r}'
        )
    plain = {label.item() if hasattr(label, "item") else label: by for label, by in value.items()}
    return {
        str(int(label) if isinstance(label, bool) else label): real(by, f"{name} of {label!r}", least=0)
        for label, by in plain.items()
    }


def _model(value: Any, name: str) -> Any:
    if not (hasattr(value, "params") and callable(getattr(value, "predict", None))):
        raise BadArgument(f"{name} must be a model, as corgipile.load returns, got {value!r}")
    return value


BLOCK = Setting("Block: rows (1000), bytes (256KB) or share (1%).")
CALL = Setting("", _is(Callable, "a function"))
TEST = Setting("Table of held-out rows.")


@dataclass(kw_only=True, eq=False, repr=False)
class Settings:
    """Settings of `corgipile.train`, the estimators, `corgipile.compare` and their commands.

    Declare a setting here, or in the subclass of those that have it, and use it where it matters: commands then have it
    as an option, its value is checked, and model files and ``--json`` contain it.
    """

    model: Annotated[str, Setting(f"{', '.join(LOSSES)}.", _kind)] = "logistic"
    features: Annotated[
        str | Sequence[str] | Callable[[Any], Sequence[str]] | None,
        Setting("Feature column, or several with commas; inferred by default."),
    ] = None
    label: Annotated[str, Setting("Column of labels.", _is(str, "the name of a column"))] = "label"
    encode: Annotated[
        str | Mapping[str, str] | None,
        Setting("Text and categories as onehot, ordinal or hash:256; by column: city=onehot,zip=hash.", _encode),
    ] = None
    text: Annotated[
        str | Sequence[str] | None,
        Setting("Column of text whose words and n-grams are hashed to features, or several with commas.", _text),
    ] = None
    interactions: Annotated[
        Sequence[str | Sequence[str]] | None,
        Setting("Columns whose products are hashed to features: city:device,city:hour.", _interactions),
    ] = None
    hash_bits: Annotated[
        int,
        Setting("Hashed features have 2^bits indices.", partial(whole, least=1, most=_kernel.MOST_HASH_BITS)),
    ] = 18
    ngrams: Annotated[
        int, Setting("Largest number of words of an n-gram.", partial(whole, least=1, most=_kernel.MOST_NGRAMS))
    ] = 2
    missing: Annotated[str | float, Setting("Value for null and NaN: error, mean or a number.")] = "error"
    epochs: Annotated[int, Setting("Passes over the table.", partial(whole, least=0, most=MAX_EPOCH))] = 5
    learning_rate: Annotated[
        float | None,
        Setting(
            "Learning rate of the first epoch; by default that of the step, reduced if training diverges.",
            partial(real, above=0),
        ),
    ] = None
    step: Annotated[
        str | None,
        Setting(
            f"{', '.join(STEPS)}; by default auto for classes (adagrad for n-grams of text alone), else decay.", _step
        ),
    ] = None
    decay: Annotated[
        float, Setting("Factor on the learning rate per epoch, for decay.", partial(real, above=0, most=1))
    ] = 0.95
    l2: Annotated[float, Setting("Strength of L2 regularisation.", partial(real, least=0))] = 0.0
    l1: Annotated[float, Setting("Strength of L1 regularisation.", partial(real, least=0))] = 0.0
    max_norm: Annotated[
        float | None, Setting("Bound of the weights' norm after each update.", partial(real, above=0))
    ] = None
    batch_size: Annotated[int, Setting("Rows of one update.", partial(whole, least=1, most=MAX_BATCH))] = 1
    memory: Annotated[
        Size | None, Setting("Memory for rows, read-ahead included: 64MB, 1G, or a share of the table (5%).", _memory)
    ] = "64MB"
    seed: Annotated[int, Setting("The same seed gives the same result.", whole)] = 0
    intercept: Annotated[bool, Setting("Learn an intercept.", yes_or_no)] = True
    average: Annotated[
        bool | None,
        Setting("Predict with the mean of all weights; by default unless a step or learning rate is given.", yes_or_no),
    ] = None
    standardize: Annotated[
        bool | None, Setting("Standardise features to mean 0 and deviation 1; by default if needed.", yes_or_no)
    ] = None

    def checked(self) -> Self:
        """Return the checked settings, with numbers as Python's own types.

        Raises:
            BadArgument: A setting is out of range.

        Example:
            >>> Settings(epochs=-1).checked()
            Traceback (most recent call last):
            ...
            corgipile.errors.BadArgument: epochs must be a whole number of 0 to 4611686018427387904, got -1
        """
        given = [(name, getattr(self, name), declaration) for name, declaration in declared(type(self)).items()]
        checked = {
            name: declaration.checked(value, name)
            for name, value, declaration in given
            if value is not declaration.default
        }
        return replace(self, **checked)


@dataclass(kw_only=True, eq=False, repr=False)
class TrainSettings(Settings):
    """Settings of `corgipile.train` and the estimators."""

    order: Annotated[Order | str, Setting("Visit order: auto, balanced, riffle, full ...", _order)] = "auto"
    tolerance: Annotated[
        float | None, Setting("Stop when the loss improves by less than this.", partial(real, least=0))
    ] = None
    validation: Annotated[
        float | None,
        Setting("Share of rows held out for validation, such as 0.1.", partial(real, above=0)),
    ] = None
    patience: Annotated[
        int | None,
        Setting("Stop after this many epochs without a better validation loss.", partial(whole, least=1)),
    ] = None
    weight: Annotated[str | None, Setting("Column of sample weights.", _is(str, "the name of a column"))] = None
    class_weight: Annotated[
        str | Mapping[Any, float] | None,
        Setting("Weights of classes: balanced, or by class: no=1,yes=20.", _class_weight),
    ] = None
    on_bad: Annotated[
        OnBad,
        Setting("Treatment of rows that cannot be trained on: raise or skip.", partial(choice, kind=OnBad)),
    ] = "raise"


@dataclass(kw_only=True, eq=False, repr=False)
class TrainArguments(TrainSettings):
    """The arguments of `corgipile.train`."""

    table: Any = field(kw_only=False)
    test: Annotated[Any, TEST] = None
    group: Annotated[
        str | None,
        Setting("Column whose values validation does not split.", _is(str, "the name of a column")),
    ] = None
    by: Annotated[
        str | None,
        Setting("Column: one model for each of its values, in one pass.", _is(str, "the name of a column")),
    ] = None
    labels: Annotated[
        str | Sequence[str] | None,
        Setting("Column of lists of labels, or columns of 0 and 1: one model for each label, in one pass.", _text),
    ] = None
    classes: Sequence[Any] | None = None
    warm_start: Annotated["Model | None", Setting("Model file to continue from.", _model)] = None
    save: Annotated[
        str | os.PathLike[str] | None,
        Setting("Model file, written after each epoch.", _is(str | os.PathLike, "a path")),
    ] = None
    overwrite: Annotated[bool, Setting("Replace files of other kinds too, except inputs.", yes_or_no)] = False
    solver: Annotated[
        Solver,
        Setting(
            "sgd; or the optimum: newton, for few features, or dual; auto: newton for regression, if it can.",
            partial(choice, kind=Solver),
        ),
    ] = "sgd"
    inner: Annotated[
        int | None,
        Setting("Visits of each buffered row, for dual; 10 by default.", partial(whole, least=1, most=1 << 31)),
    ] = None
    callback: Annotated[Callable[[dict[str, Any]], object] | None, CALL] = None
    on_rows: Annotated[Callable[[int], object] | None, CALL] = None


def declared(kind: type) -> Mapping[str, Declared]:
    """Return the settings declared in a class.

    Example:
        >>> declared(TrainSettings)["epochs"].default
        5
    """
    if kind not in _declared:
        _declared[kind] = MappingProxyType(_settings_of(kind))
    return _declared[kind]


def changed(given: Any, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield settings that differ from their defaults, with their text in errors.

    Example:
        >>> list(changed(TrainSettings(epochs=9), ("epochs", "l2")))
        [('epochs', 'epochs=9')]
    """
    known = declared(type(given))
    for name in names:
        value, default = getattr(given, name), known[name].default if name in known else None
        if value is not default and value != default:
            yield name, f"{name}={short(value)}"


_declared: dict[type, Mapping[str, Declared]] = {}  # cache by class


def _settings_of(kind: type) -> dict[str, Declared]:
    return {
        spec.name: Declared(spec.type.__origin__, spec.default, spec.type.__metadata__[0])  # type: ignore[union-attr]
        for spec in fields(kind)
        if hasattr(spec.type, "__metadata__")
    }
