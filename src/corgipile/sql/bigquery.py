"""Reads the statements that manage models, in BigQuery's words, and their options as settings of ours."""

from collections.abc import Callable
from typing import Any

from corgipile.errors import BadArgument
from corgipile.losses import NAMES, check_kind
from corgipile.sql.calls import model_name
from corgipile.sql.options import ALIASES, ELSEWHERE, LOSSES, MORE, SETTINGS, assignments, checked, setting
from corgipile.sql.reader import Reader
from corgipile.sql.sources import source_of
from corgipile.sql.statements import DescribeModel, DropModel, Parameter, RenameModel, ShowModels, Statement, Train
from corgipile.sql.values import column_names, value
from corgipile.suggestions import did_you_mean

__all__ = ["create_model", "manage"]

# Options that change nothing here, whatever they say.
IDLE = frozenset(
    """description enable_global_explain expiration_timestamp friendly_name kms_key_name model_registry
    vertex_ai_model_id vertex_ai_model_version_aliases""".split()  # noqa: SIM905
)
# What is said of earlier versions of a model.
VERSIONS = {
    "duckdb": "DuckDB keeps one version of a model: INTO another name keeps both, ROLLBACK takes a transaction back",
    "postgres": "SELECT * FROM corgipile.versions lists versions, SELECT corgipile.rollback('m') takes an earlier one",
}


def _never(_: Any) -> bool:
    return False


# Options of which some values change nothing: all others would, and we have nothing of the kind.
ONLY: dict[str, tuple[Callable[[Any], bool], str]] = {
    "optimize_strategy": (lambda given: str(given).upper() == "AUTO_STRATEGY", "models are trained by SGD"),
    "learn_rate_strategy": (
        _never,
        "the step is learn_rate times decay for each epoch; 'CONSTANT' keeps it as it is",
    ),
    "ls_init_learn_rate": (_never, "there is no line search; learn_rate is the step of the first epoch"),
    "num_trials": (lambda given: given in (0, 1), "settings are not tuned; corgipile.compare tries orders"),
    "data_split_col": (_never, "rows are held out at random; say data_split_method = 'RANDOM'"),
}
ENCODINGS = {"ONE_HOT_ENCODING": "onehot", "LABEL_ENCODING": "ordinal"}
SPLITS = {"NO_SPLIT": None, "RANDOM": 0.2}
OWN = (
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
    *ONLY,
    *IDLE,
)


def manage(reader: Reader, offset: int) -> Statement | None:
    """Read DROP MODEL, ALTER MODEL, SHOW MODELS and DESCRIBE MODEL; None where it is none of them.

    Raises:
        BadStatement: It begins like one and goes on otherwise.
    """
    look = reader.part(0, reader.stop)
    if look.takes("DROP", "MODEL"):
        if_exists = look.takes("IF", "EXISTS")
        made: Statement = DropModel(offset=offset, name=model_name(look), if_exists=if_exists)
    elif look.takes("ALTER", "MODEL"):
        if_exists, name = look.takes("IF", "EXISTS"), model_name(look)
        if look.sees("ROLLBACK"):
            raise look.wrong(VERSIONS[reader.script.dialect])
        look.needs("RENAME", "TO", what="RENAME TO and a name")
        made = RenameModel(offset=offset, name=name, to=model_name(look, "the new name"), if_exists=if_exists)
    elif look.sees("SHOW", "MODELS") and (look.peek(2) is None or look.sees("SHOW", "MODELS", "LIKE")):
        look.at += 2
        like = look.next("a pattern, such as 'a%'", "string").text if look.takes("LIKE") else None
        made = ShowModels(offset=offset, like=like)
    elif look.sees("SHOW", "MODEL", "VERSIONS") or look.sees("SHOW", "VERSIONS", "OF", "MODEL"):
        raise look.wrong(VERSIONS[reader.script.dialect])
    elif look.peek(2) is not None and (look.takes("DESCRIBE", "MODEL") or look.takes("DESC", "MODEL")):
        made = DescribeModel(offset=offset, name=model_name(look))
    else:
        return None
    look.end()
    return made


def create_model(reader: Reader, offset: int) -> Train | None:
    """Read CREATE MODEL; None where it is something else.

    Raises:
        BadStatement: It is one, and wrong.
    """
    look = reader.part(reader.at, reader.stop)
    if not look.takes("CREATE"):
        return None
    replace = look.takes("OR", "REPLACE")
    if not look.takes("MODEL"):
        return None
    if_not_exists = look.takes("IF", "NOT", "EXISTS")
    if replace and if_not_exists:
        raise look.wrong("OR REPLACE and IF NOT EXISTS exclude each other", look.at - 3)
    name = model_name(look, "a name for the model")
    if look.sees("TRANSFORM"):
        raise look.wrong("TRANSFORM is not supported: write the expressions in the SELECT, or use encode and missing")
    look.needs("OPTIONS", "(", what="OPTIONS (model_type = …)")
    close = look.closing(look.at - 1)
    options = Options(look.part(look.at, close), name)
    look.at = close + 1
    if look.sees("TRANSFORM"):
        raise look.wrong("TRANSFORM is not supported: write the expressions in the SELECT, or use encode and missing")
    look.needs("AS", what="AS and the SELECT of the rows")
    source = source_of(look)
    return Train(
        offset=offset,
        source=source,
        name=name,
        usual_label="label",
        replace=replace,
        if_not_exists=if_not_exists,
        **options.arguments(),
    )


class Options:
    """The options of CREATE MODEL: as settings of ours, or, where they mean nothing here, as notes.

    Args:
        reader: The tokens in the brackets.
        name: The name of the model.
    """

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
            raise reader.wrong("OPTIONS must say model_type, such as model_type = 'LOGISTIC_REG'")

    def arguments(self) -> dict[str, Any]:
        """Return arguments of `Train`."""
        given, settings = self.given, dict(self.settings)
        if given.get("early_stop", "min_rel_progress" in given):
            settings.setdefault("tolerance", given.get("min_rel_progress", 0.01))
        elif "min_rel_progress" in given:
            self.notes.append("min_rel_progress means nothing where early_stop is false")
        if "data_split_method" in given:
            share = SPLITS[given["data_split_method"]]
            if share is None and settings.pop("validation", None) is not None:
                self.notes.append("data_split_eval_fraction means nothing where data_split_method is NO_SPLIT")
            elif share is not None:
                settings.setdefault("validation", share)
        said = {
            name: settings.pop(name) for name in ("features", "label") if isinstance(settings.get(name), str | tuple)
        }
        warm = settings.pop("warm_start", None)
        said["warm_start"] = self.name if warm is True else warm or None
        return {"model": given["model_type"], "settings": settings, "notes": tuple(self.notes), **said}

    def _read(self, option: str) -> None:
        """Read the value of an option."""
        reader, at, begin = self.reader, self.reader.at - 2, self.reader.at
        if option not in OWN and option != "warm_start":
            if option not in {*SETTINGS, *MORE, *ALIASES, *ELSEWHERE}:
                self._unknown(option, at)
            name = ALIASES.get(option, option)
            if self.by.setdefault(name, option) in OWN:
                raise reader.wrong(_both(self.by[name], option, name), at)
            setting(reader, option, self.settings)
            return
        if option in self.given:
            raise reader.wrong(f"{option} is set twice", at)
        if option == "input_label_cols":
            self._label(begin, option, column_names(reader))
            return
        if option == "labels" and not (reader.sees("[") or reader.sees("ARRAY")):  # those of a row
            self._several(begin, option, column_names(reader))
            return
        given = self.given[option] = value(reader)
        if option == "labels" and isinstance(given, list) and given and all(isinstance(one, str) for one in given):
            self._label(begin, option, given)  # as older statements call them
            return
        if isinstance(given, Parameter):
            raise reader.wrong(f"{option} takes no parameter; write its value", begin)
        try:
            self._take(option, given)
        except BadArgument as error:
            raise reader.wrong(str(error), begin) from None

    def _unknown(self, option: str, at: int) -> None:
        names = [*OWN, *SETTINGS, *MORE, *ALIASES]
        hint = did_you_mean(option, names) or "; it would change the model, and there is nothing like it here"
        raise self.reader.wrong(f"there is no option {option!r}{hint}", at)

    def _several(self, begin: int, option: str, given: Any) -> None:
        """Keep the columns of several labels."""
        self.given[option] = given
        try:
            self._set("labels", checked("labels", given), option)
        except BadArgument as error:
            raise self.reader.wrong(str(error), begin) from None

    def _label(self, begin: int, option: str, given: Any) -> None:
        """Keep the column of the label; several are labels that a row may have."""
        if isinstance(given, list) and len(given) > 1:
            self._several(begin, option, given)
            return
        self.given[option] = given
        try:
            label = checked("label", given)
        except BadArgument as error:
            raise self.reader.wrong(str(error).replace("label", option, 1), begin) from None
        try:
            self._set("label", label, option)
        except BadArgument as error:
            raise self.reader.wrong(str(error), begin) from None

    def _set(self, name: str, given: Any, option: str) -> None:
        """Keep a setting that an option of BigQuery's says."""
        if self.by.setdefault(name, option) != option:
            raise BadArgument(_both(self.by[name], option, name))
        self.settings[name] = given

    def _take(self, option: str, given: Any) -> None:
        """Keep what an option of BigQuery's says."""
        if option == "model_type":
            self.given[option] = _loss(given)
        elif option == "warm_start":
            self.settings[option] = given if isinstance(given, bool) else checked(option, given)
        elif option in IDLE or option == "labels":
            self.notes.append(f"option {option} means nothing here")
        elif option == "learn_rate_strategy" and str(given).upper() == "CONSTANT":
            self._set("decay", 1.0, option)
        elif option in ONLY:
            harmless, why = ONLY[option]
            if not harmless(given):
                raise BadArgument(f"{option} = {given!r} is not supported: {why}")
            self.notes.append(f"option {option} = {given!r} is as things are here anyway")
        elif option in ("data_split_method", "category_encoding_method"):
            self._choose(option, given)
        elif option == "class_weights":
            self._set("class_weight", _weights_of(given), option)
        else:
            self._say(option, given)

    def _say(self, option: str, given: Any) -> None:
        """Keep a number of BigQuery's, or whether something is to be."""
        name = "tolerance" if option == "min_rel_progress" else "intercept"  # whose checks serve
        said = self.given[option] = SETTINGS[name].checked(given, option)
        if option == "auto_class_weights" and said:
            self._set("class_weight", "balanced", option)
        elif option == "calculate_p_values" and said:
            self.notes.append(f"p-values are those of rows: ML.ADVANCED_WEIGHTS(MODEL {self.name}, TABLE ...) has them")

    def _choose(self, option: str, given: Any) -> None:
        """Keep one of some words."""
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
    """Return what classes count for, of ``[STRUCT('no', 0.5), ('yes', 2)]``."""
    pairs = given if isinstance(given, list) else []
    if not pairs or not all(isinstance(one, list) and len(one) == 2 and _is_number(one[1]) for one in pairs):
        raise BadArgument(
            f"class_weights must be pairs of a class and a number, such as [('no', 1), ('yes', 20)], got {given!r}"
        )
    return {str(name): float(weight) for name, weight in pairs}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _loss(given: Any) -> str:
    """Return a loss by BigQuery's name of a model, or by ours."""
    name = LOSSES.get(str(given).lower(), str(given).lower())
    try:
        check_kind(name)
    except BadArgument:
        raise BadArgument(
            f"model_type must be 'LOGISTIC_REG', 'LINEAR_REG' or one of {', '.join(NAMES)}, got {given!r}"
        ) from None
    return name
