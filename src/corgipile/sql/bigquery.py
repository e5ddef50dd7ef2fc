"""Parser of BigQuery's model statements; it maps their options to corgipile's settings."""

from typing import Any

from corgipile.errors import BadArgument
from corgipile.losses import NAMES, check_kind
from corgipile.sql.calls import model_name
from corgipile.sql.options import (
    ALIASES,
    LOSSES,
    ORDER_SETTINGS,
    REPLACED_BY,
    SETTINGS,
    assignments,
    check_setting,
    setting,
)
from corgipile.sql.reader import Reader
from corgipile.sql.sources import source_of
from corgipile.sql.statements import DescribeModel, DropModel, Parameter, RenameModel, ShowModels, Statement, Train
from corgipile.sql.values import column_names, value
from corgipile.suggestions import did_you_mean

__all__ = ["create_model", "manage"]

# Error messages for statements about model versions.
VERSIONS = {
    "duckdb": "DuckDB keeps one version of a model: store the second INTO another name, or ROLLBACK the transaction",
    "postgres": "SELECT * FROM corgipile.versions lists versions, SELECT corgipile.rollback('m') restores the previous",
}
ENCODINGS = {"ONE_HOT_ENCODING": "onehot", "LABEL_ENCODING": "ordinal"}
SPLITS = {"NO_SPLIT": None, "RANDOM": 0.2}
OPTIONS = (
    "model_type",
    "input_label_cols",
    "labels",
    "data_split_method",
    "category_encoding_method",
    "early_stop",
    "min_rel_progress",
    "calculate_p_values",
    "auto_class_weights",
    "class_weights",
    "learn_rate_strategy",
)


def manage(reader: Reader, offset: int) -> Statement | None:
    """Read DROP MODEL, ALTER MODEL, SHOW MODELS or DESCRIBE MODEL; return None for other statements."""
    look = reader.part(0, reader.stop)
    if look.accept("DROP", "MODEL"):
        if_exists = look.accept("IF", "EXISTS")
        statement: Statement = DropModel(offset=offset, name=model_name(look), if_exists=if_exists)
    elif look.accept("ALTER", "MODEL"):
        if_exists, name = look.accept("IF", "EXISTS"), model_name(look)
        if look.next_is("ROLLBACK"):
            raise look.error(VERSIONS[reader.script.dialect])
        look.expect("RENAME", "TO", what="RENAME TO and a name")
        statement = RenameModel(offset=offset, name=name, to=model_name(look, "the new name"), if_exists=if_exists)
    elif look.next_is("SHOW", "MODELS") and (look.peek(2) is None or look.next_is("SHOW", "MODELS", "LIKE")):
        look.at += 2
        like = look.next("a pattern, such as 'a%'", "string").text if look.accept("LIKE") else None
        statement = ShowModels(offset=offset, like=like)
    elif look.next_is("SHOW", "MODEL", "VERSIONS") or look.next_is("SHOW", "VERSIONS", "OF", "MODEL"):
        raise look.error(VERSIONS[reader.script.dialect])
    elif look.peek(2) is not None and (look.accept("DESCRIBE", "MODEL") or look.accept("DESC", "MODEL")):
        statement = DescribeModel(offset=offset, name=model_name(look))
    else:
        return None
    look.end()
    return statement


def create_model(reader: Reader, offset: int) -> Train | None:
    """Read CREATE MODEL; return None for other statements."""
    look = reader.part(reader.at, reader.stop)
    if not look.accept("CREATE"):
        return None
    replace = look.accept("OR", "REPLACE")
    if not look.accept("MODEL"):
        return None
    if_not_exists = look.accept("IF", "NOT", "EXISTS")
    if replace and if_not_exists:
        raise look.error("OR REPLACE and IF NOT EXISTS exclude each other", look.at - 3)
    name = model_name(look, "a name for the model")
    if look.next_is("TRANSFORM"):
        raise look.error("TRANSFORM is not supported: write the expressions in the SELECT, or use encode and missing")
    look.expect("OPTIONS", "(", what="OPTIONS (model_type = …)")
    close = look.closing_bracket(look.at - 1)
    options = Options(look.part(look.at, close), name)
    look.at = close + 1
    if look.next_is("TRANSFORM"):
        raise look.error("TRANSFORM is not supported: write the expressions in the SELECT, or use encode and missing")
    look.expect("AS", what="AS and the SELECT of the rows")
    how = {"replace": replace, "if_not_exists": if_not_exists, **options.arguments()}
    return Train(offset=offset, source=source_of(look), name=name, usual_label="label", **how)


class Options:
    """The options of CREATE MODEL, read between its brackets, as settings of `corgipile.train`."""

    def __init__(self, reader: Reader, name: str) -> None:
        self.reader, self.name = reader, name
        self.settings: dict[str, Any] = {}
        self.by: dict[str, str] = {}  # the option that set each setting
        self.given: dict[str, Any] = {}
        self.notes: list[str] = []
        if reader.peek() is not None:
            for option in assignments(reader, ()):
                self._read(option)
        if "model_type" not in self.given:
            raise reader.error("OPTIONS must set model_type, such as model_type = 'LOGISTIC_REG'")

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments of `Train`."""
        given, settings = self.given, dict(self.settings)
        if given.get("early_stop", "min_rel_progress" in given):
            settings.setdefault("tolerance", given.get("min_rel_progress", 0.01))
        elif "min_rel_progress" in given:
            self.notes.append("min_rel_progress has no effect when early_stop is false")
        if "data_split_method" in given:
            share = SPLITS[given["data_split_method"]]
            if share is None and settings.pop("validation", None) is not None:
                self.notes.append("data_split_eval_fraction has no effect when data_split_method is NO_SPLIT")
            elif share is not None:
                settings.setdefault("validation", share)
        written = [name for name in ("features", "label") if isinstance(settings.get(name), str | tuple)]
        fields = {name: settings.pop(name) for name in written}
        warm = settings.pop("warm_start", None)
        fields["warm_start"] = self.name if warm is True else warm or None
        return {"model": given["model_type"], "settings": settings, "notes": tuple(self.notes), **fields}

    def _read(self, option: str) -> None:
        """Read the value of an option."""
        reader, at, begin = self.reader, self.reader.at - 2, self.reader.at
        if option not in OPTIONS and option != "warm_start":
            if option not in {*SETTINGS, *ORDER_SETTINGS, *ALIASES, *REPLACED_BY}:
                self._unknown(option, at)
            name = ALIASES.get(option, option)
            if self.by.setdefault(name, option) in OPTIONS:
                raise reader.error(_both(self.by[name], option, name), at)
            setting(reader, option, self.settings)
            return
        if option in self.given:
            raise reader.error(f"{option} is set twice", at)
        if option == "input_label_cols":
            self._label(begin, option, column_names(reader))
            return
        if option == "labels" and not (reader.next_is("[") or reader.next_is("ARRAY")):  # multi-label columns
            self._several(begin, option, column_names(reader))
            return
        given = self.given[option] = value(reader)
        listed = isinstance(given, list) and given and all(isinstance(column, str) for column in given)
        if option == "labels" and listed:
            self._label(begin, option, given)  # another name of input_label_cols
            return
        if isinstance(given, Parameter):
            raise reader.error(f"{option} takes no parameter; write its value", begin)
        try:
            self._take(option, given)
        except BadArgument as error:
            raise reader.error(str(error), begin) from None

    def _unknown(self, option: str, at: int) -> None:
        names = [*OPTIONS, *SETTINGS, *ORDER_SETTINGS, *ALIASES]
        hint = did_you_mean(option, names) or "; corgipile has no equivalent"
        raise self.reader.error(f"there is no option {option!r}{hint}", at)

    def _several(self, begin: int, option: str, given: Any) -> None:
        """Set the columns of a multi-label model."""
        self.given[option] = given
        try:
            self._set("labels", check_setting("labels", given), option)
        except BadArgument as error:
            raise self.reader.error(str(error), begin) from None

    def _label(self, begin: int, option: str, given: Any) -> None:
        """Set the label column, or the columns of a multi-label model."""
        if isinstance(given, list) and len(given) > 1:
            self._several(begin, option, given)
            return
        self.given[option] = given
        try:
            label = check_setting("label", given)
        except BadArgument as error:
            raise self.reader.error(str(error).replace("label", option, 1), begin) from None
        try:
            self._set("label", label, option)
        except BadArgument as error:
            raise self.reader.error(str(error), begin) from None

    def _set(self, name: str, given: Any, option: str) -> None:
        """Set the setting that a BigQuery option stands for."""
        if self.by.setdefault(name, option) != option:
            raise BadArgument(_both(self.by[name], option, name))
        self.settings[name] = given

    def _take(self, option: str, given: Any) -> None:
        """Apply an option that BigQuery defines."""
        if option == "model_type":
            self.given[option] = _loss(given)
        elif option == "warm_start":
            self.settings[option] = given if isinstance(given, bool) else check_setting(option, given)
        elif option == "labels":
            self.notes.append("option labels has no effect here")
        elif option == "learn_rate_strategy":
            if str(given).upper() != "CONSTANT":
                why = "each epoch multiplies the step by decay"
                raise BadArgument(f"{option} must be 'CONSTANT', got {given!r}: {why}")
            self._set("decay", 1.0, option)
        elif option in ("data_split_method", "category_encoding_method"):
            self._choose(option, given)
        elif option == "class_weights":
            self._set("class_weight", _weights_of(given), option)
        else:
            self._set_checked(option, given)

    def _set_checked(self, option: str, given: Any) -> None:
        """Apply an option that is a number or a boolean."""
        name = "tolerance" if option == "min_rel_progress" else "intercept"  # reuse its checks
        value = self.given[option] = SETTINGS[name].checked(given, option)
        if option == "auto_class_weights" and value:
            self._set("class_weight", "balanced", option)
        elif option == "calculate_p_values" and value:
            self.notes.append(f"p-values need rows: query ML.ADVANCED_WEIGHTS(MODEL {self.name}, TABLE ...)")

    def _choose(self, option: str, given: Any) -> None:
        """Apply an option that is one of several words."""
        known: dict[str, Any] = SPLITS if option == "data_split_method" else ENCODINGS
        word = str(given).upper()
        if word not in known:
            raise BadArgument(f"{option} must be {' or '.join(known)} here, got {given!r}")
        self.given[option] = word
        if option == "category_encoding_method":
            self._set("encode", ENCODINGS[word], option)


def _both(first: str, second: str, name: str) -> str:
    return f"{first} and {second} both set {name}; give one of them"


def _weights_of(given: Any) -> dict[str, float]:
    """Return the weight of each class from ``[STRUCT('no', 0.5), ('yes', 2)]``."""
    pairs = given if isinstance(given, list) else []
    if not pairs or not all(isinstance(pair, list) and len(pair) == 2 and _is_number(pair[1]) for pair in pairs):
        raise BadArgument(
            f"class_weights must be pairs of a class and a number, such as [('no', 1), ('yes', 20)], got {given!r}"
        )
    return {str(name): float(weight) for name, weight in pairs}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _loss(given: Any) -> str:
    """Return the loss that a BigQuery or corgipile model type names."""
    name = LOSSES.get(str(given).lower(), str(given).lower())
    try:
        check_kind(name)
    except BadArgument:
        raise BadArgument(
            f"model_type must be 'LOGISTIC_REG', 'LINEAR_REG' or one of {', '.join(NAMES)}, got {given!r}"
        ) from None
    return name
