"""Parser of BigQuery's model statements; it maps their options to corgipile's settings."""

from collections.abc import Sequence
from typing import Any, get_args

from corgipile.errors import BadArgument
from corgipile.losses import NAMES, check_kind
from corgipile.settings import Solver
from corgipile.sizes import whole
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
from corgipile.sql.statements import (
    DescribeModel,
    DropModel,
    Parameter,
    RenameModel,
    SetModel,
    ShowModels,
    Statement,
    Train,
)
from corgipile.sql.transforms import transform_of
from corgipile.sql.values import column_names, value
from corgipile.suggestions import did_you_mean

__all__ = ["create_model", "manage"]

# Error messages for statements about model versions.
VERSIONS = {
    "duckdb": "DuckDB keeps one version of a model: store the second INTO another name, or ROLLBACK the transaction",
    "postgres": "SELECT * FROM corgipile.versions lists versions, SELECT corgipile.rollback('m') restores the previous",
}
CHOICES: dict[str, dict[str, tuple[str, Any] | None]] = {  # words of options, and the setting that a word stands for
    "data_split_method": dict.fromkeys(("NO_SPLIT", "RANDOM", "AUTO_SPLIT", "SEQ", "CUSTOM")),
    "category_encoding_method": {
        f"{word}_ENCODING": ("encode", way)
        for word, way in {"ONE_HOT": "onehot", "DUMMY": "dummy", "LABEL": "ordinal"}.items()
    },
    "learn_rate_strategy": {"LINE_SEARCH": None, "CONSTANT": ("decay", 1.0)},
    "optimize_strategy": {
        "AUTO_STRATEGY": None,
        "BATCH_GRADIENT_DESCENT": None,
        "NORMAL_EQUATION": ("solver", "newton"),
    },
}
TUNED = {"l1_reg": "l1", "l2_reg": "l2", "learn_rate": "learning_rate"}
MAX_TRIALS = 1000
DESCRIPTIONS = ("description", "friendly_name", "labels")  # options of ALTER MODEL
BIGQUERY_TYPES = ("logistic_reg", "linear_reg")
IGNORED = """ls_init_learn_rate max_parallel_trials hparam_tuning_algorithm hparam_tuning_objectives model_registry
    data_split_test_fraction vertex_ai_model_id vertex_ai_model_version_aliases kms_key_name friendly_name description
    """.split()  # noqa: SIM905
OPTIONS = (
    *IGNORED,
    *CHOICES,
    *("model_type", "input_label_cols", "labels", "data_split_col", "num_trials", "class_weights"),
    *("early_stop", "min_rel_progress", "calculate_p_values", "auto_class_weights", "enable_global_explain"),
)


def manage(reader: Reader, offset: int) -> Statement | None:
    """Read a statement that manages models; return None for other statements."""
    look = reader.part(0, reader.stop)
    if look.accept("DROP", "MODEL"):
        if_exists = look.accept("IF", "EXISTS")
        statement: Statement = DropModel(offset=offset, name=model_name(look), if_exists=if_exists)
    elif look.accept("ALTER", "MODEL"):
        if_exists, name = look.accept("IF", "EXISTS"), model_name(look)
        if look.next_is("ROLLBACK"):
            raise look.error(VERSIONS[reader.script.dialect])
        if look.accept("SET"):
            options = _listed_options(look, DESCRIPTIONS)
            statement = SetModel(offset=offset, name=name, options=options, if_exists=if_exists)
        else:
            look.expect("RENAME", "TO", what="RENAME TO and a name, or SET OPTIONS")
            statement = RenameModel(offset=offset, name=name, to=model_name(look, "the new name"), if_exists=if_exists)
    elif look.accept("EXPORT", "MODEL"):
        name = model_name(look)
        statement = SetModel(offset=offset, name=name, options=_listed_options(look, ("uri",)))
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


def _listed_options(look: Reader, known: Sequence[str]) -> dict[str, Any]:
    """Read ``OPTIONS (option = value, …)``: text, or lists."""
    look.expect("OPTIONS", "(", what=f"OPTIONS ({known[0]} = …)")
    close = look.closing_bracket(look.at - 1)
    part, options = look.part(look.at, close), dict[str, Any]()
    for name in assignments(part, ()):
        if name not in known:
            raise part.error(f"{name} is not supported here; options are {', '.join(known)}", part.at - 2)
        options[name] = value(part)
        if not isinstance(options[name], str | (list if name == "labels" else str)):
            raise part.error(f"{name} must be text", part.at - 1)
    look.at = close + 1
    return options


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
    transform = None
    if look.accept("TRANSFORM", "("):
        close = look.closing_bracket(look.at - 1)
        transform, look.at = transform_of(look.part(look.at, close)), close + 1
    look.expect("OPTIONS", "(", what="OPTIONS (model_type = …)")
    close = look.closing_bracket(look.at - 1)
    options = Options(look.part(look.at, close), name, transform)
    look.at = close + 1
    look.expect("AS", what="AS and the SELECT of the rows")
    how = {"replace": replace, "if_not_exists": if_not_exists, **options.arguments()}
    return Train(offset=offset, source=source_of(look), name=name, usual_label="label", **how)


class Options:
    """The options of CREATE MODEL, read between its brackets, as settings of `corgipile.train`."""

    def __init__(self, reader: Reader, name: str, transform: dict[str, str] | None = None) -> None:
        self.reader, self.name, self.transform = reader, name, transform
        self.settings: dict[str, Any] = {}
        self.by: dict[str, str] = {}  # the option that set each setting
        self.given: dict[str, Any] = {}
        self.candidates: dict[str, list[float] | tuple[float, float]] = {}
        self.bigquery = False
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
        options = self._model_options(settings)
        written = [name for name in ("features", "label") if isinstance(settings.get(name), str | tuple)]
        fields = {name: settings.pop(name) for name in written}
        warm = settings.pop("warm_start", None)
        fields["warm_start"] = self.name if warm is True else warm or None
        return {
            "model": given["model_type"],
            "settings": settings,
            "notes": tuple(self.notes),
            "options": options,
            **fields,
        }

    def _model_options(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the options for the engine; the share of held-out rows is a setting unless rows are in a sequence."""
        given = {**self.given, "bigquery": self.bigquery, "candidates": self.candidates, "transform": self.transform}
        method, fraction = given.get("data_split_method"), "data_split_eval_fraction"
        if (method in ("SEQ", "CUSTOM")) != ("data_split_col" in given):
            raise self.reader.error("data_split_method SEQ or CUSTOM and data_split_col need each other")
        if self.candidates and "num_trials" not in given:
            raise self.reader.error("HPARAM_RANGE and HPARAM_CANDIDATES need num_trials")
        if method == "RANDOM":
            settings.setdefault("validation", 0.2)
        elif method == "SEQ" and "validation" in settings:
            given[fraction] = settings.pop("validation")
        elif method is not None and settings.pop("validation", None) is not None:
            self.notes.append(f"{fraction} has no effect when data_split_method is {method}")
        if given.get("calculate_p_values"):
            self.notes.append(f"p-values of any rows: query ML.ADVANCED_WEIGHTS(MODEL {self.name}, TABLE ...)")
        return given

    def _read(self, option: str) -> None:
        """Read the value of an option."""
        reader, at, begin = self.reader, self.reader.at - 2, self.reader.at
        if option not in OPTIONS and option != "warm_start":
            self._setting(option, at)
            return
        if option in self.given:
            raise reader.error(f"{option} is set twice", at)
        if option == "input_label_cols":
            self._label(begin, option, column_names(reader))
            return
        if option == "labels" and not (reader.next_is("[") or reader.next_is("ARRAY")):  # multi-label columns
            self._label(begin, option, column_names(reader), several=True)
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

    def _setting(self, option: str, at: int) -> None:
        """Read the value of a setting of `corgipile.train`."""
        reader, name = self.reader, ALIASES.get(option, option)
        if option not in {*SETTINGS, *ORDER_SETTINGS, *ALIASES, *REPLACED_BY}:
            names = [*OPTIONS, *SETTINGS, *ORDER_SETTINGS, *ALIASES]
            hint = did_you_mean(option, names) or "; corgipile has no equivalent"
            raise reader.error(f"there is no option {option!r}{hint}", at)
        if name in self.candidates:
            raise reader.error(f"{name} is set twice", at)
        if reader.next_is("HPARAM_RANGE") or reader.next_is("HPARAM_CANDIDATES"):
            self._tune(option)
        elif self.by.setdefault(name, option) in OPTIONS:
            raise reader.error(_both(self.by[name], option, name), at)
        else:
            setting(reader, option, self.settings)

    def _tune(self, option: str) -> None:
        """Read the values of a setting that trials try."""
        reader, begin, ranged = self.reader, self.reader.at, self.reader.next_is("HPARAM_RANGE")
        reader.at += 1
        given: Any = value(reader)
        given = given[0] if not ranged and isinstance(given, list) and len(given) == 1 else given
        numbers = isinstance(given, list) and all(map(_is_number, given)) and min(given, default=-1) >= 0
        if option not in TUNED or not numbers or (ranged and (len(given) != 2 or given[0] > given[1])):
            what = "HPARAM_RANGE(least, most) or HPARAM_CANDIDATES([value, …]), not below 0"
            raise reader.error(f"{option} must be a value, or for {', '.join(TUNED)} {what}", begin)
        if TUNED[option] in {*self.settings, *self.candidates}:
            raise reader.error(f"{TUNED[option]} is set twice", begin)
        self.candidates[TUNED[option]] = tuple(given) if ranged else given

    def _label(self, begin: int, option: str, given: Any, *, several: bool = False) -> None:
        """Set the label column, or the columns of a multi-label model."""
        name = "labels" if several or (isinstance(given, list) and len(given) > 1) else "label"
        self.given[option] = given
        try:
            checked = check_setting(name, given)
        except BadArgument as error:
            raise self.reader.error(str(error).replace(name, option, 1), begin) from None
        try:
            self._set(name, checked, option)
        except BadArgument as error:
            raise self.reader.error(str(error), begin) from None

    def _set(self, name: str, given: Any, option: str) -> None:
        """Set the setting that a BigQuery option stands for."""
        if self.by.setdefault(name, option) != option:
            raise BadArgument(_both(self.by[name], option, name))
        self.settings[name] = given

    def _take(self, option: str, given: Any) -> None:
        """Apply an option that BigQuery defines."""
        if option in IGNORED or option == "labels":
            self.notes.append(f"option {option} has no effect here")
        elif option == "model_type":
            self.bigquery = str(given).lower() in BIGQUERY_TYPES
            self.given[option] = _loss(given)
        elif option == "warm_start":
            self.settings[option] = given if isinstance(given, bool) else check_setting(option, given)
        elif option == "data_split_col":
            self.given[option] = check_setting("label", given)
        elif option == "num_trials":
            whole(given, option, 1, MAX_TRIALS)
        elif option in CHOICES:
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

    def _choose(self, option: str, given: Any) -> None:
        """Apply an option that is one of several words."""
        word, known = str(given).upper(), CHOICES[option]
        if word not in known:
            raise BadArgument(f"{option} must be {' or '.join(known)} here, got {given!r}")
        self.given[option], chosen = word, known[word]
        if word in ("LINE_SEARCH", "BATCH_GRADIENT_DESCENT"):
            self.notes.append(f"{option} {word} has no effect here: training is SGD, whose default rate adapts")
        if chosen is not None and chosen[0] == "solver" and chosen[1] not in get_args(Solver):
            raise BadArgument(f"{option} {word} is not supported; leave it out, and raise max_iterations")
        if chosen is not None:
            self._set(*chosen, option)


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
