"""BigQuery's CREATE MODEL and its options."""

# ruff: noqa: E501  # tests write SQL

import pytest
from sqlparsing import error, one

from corgipile.sql.statements import (
    Parameter,
)


def test_create_model_has_the_options_of_bigquery():
    found = one("""
        CREATE OR REPLACE MODEL `project.set.m` OPTIONS (
            MODEL_TYPE = 'LOGISTIC_REG', input_label_cols = ['y'], learn_rate = 0.4, learn_rate_strategy = 'CONSTANT',
            max_iterations = 9, l1_reg = 0, l2_reg = 0.1, early_stop = TRUE, min_rel_progress = 0.002,
            data_split_method = 'RANDOM', data_split_eval_fraction = 0.25, category_encoding_method = 'LABEL_ENCODING',
            fit_intercept = false, warm_start = true, auto_class_weights = false,
            order = 'riffle', seed = 3
        ) AS SELECT * FROM t""")

    assert (found.name, found.replace, found.if_not_exists, found.model) == ("project.set.m", True, False, "logistic")
    assert (found.label, found.warm_start, found.source.table) == ("y", "project.set.m", ("t",))
    assert found.settings == {
        "learning_rate": 0.4, "decay": 1.0, "epochs": 9, "l2": 0.1, "tolerance": 0.002, "validation": 0.25,
        "encode": "ordinal", "intercept": False, "order": "riffle", "seed": 3, "l1": 0,
    }  # fmt: skip
    assert found.notes == ()


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("early_stop = true", {"tolerance": 0.01}),
        ("early_stop = false", {}),
        ("friendly_name = 'm', learn_rate_strategy = 'LINE_SEARCH', ls_init_learn_rate = 1, model_registry = 'x'", {}),
        ("category_encoding_method = 'DUMMY_ENCODING'", {"encode": "dummy"}),
        ("early_stop = false, min_rel_progress = 0.5", {}),
        ("min_rel_progress = 0.5", {"tolerance": 0.5}),
        ("data_split_method = 'random'", {"validation": 0.2}),
        ("data_split_method = 'NO_SPLIT', data_split_eval_fraction = 0.5", {}),
        ("data_split_eval_fraction = 0.5", {"validation": 0.5}),
        ("max_iterations = ?", {"epochs": Parameter(1)}),
        ("l1_reg = 0.1", {"l1": 0.1}),
        ("auto_class_weights = true", {"class_weight": "balanced"}),
        ("auto_class_weights = false", {}),
        ("class_weights = [STRUCT('no', 1), ('yes', 2.5)]", {"class_weight": {"no": 1.0, "yes": 2.5}}),
        ("calculate_p_values = true", {}),
    ],
)
def test_options_together(options, settings):
    found = one(f"CREATE MODEL m OPTIONS (model_type = 'linear_reg', {options}) AS SELECT 1, 2")
    assert found.settings == settings
    assert (found.replace, found.if_not_exists) == (False, False)


@pytest.mark.parametrize(
    "option",
    [
        "learn_rate_strategy = 'x'", "num_trials = 0", "l1_reg = HPARAM_RANGE(3, 1)", "max_iterations = HPARAM_CANDIDATES([1])",
        "calculate_p_values = 2", "auto_class_weights = 'x'", "class_weights = ['a']", "class_weights = [STRUCT('a', 'b')]", "num_trials = 'x'",
        "data_split_method = 'SEQ'", "data_split_method = 'CUSTOM'", "data_split_col = 'x'", "l2_reg = HPARAM_CANDIDATES([1])", "optimize_strategy = 'x'",
        "category_encoding_method = 'TARGET_ENCODING'", "early_stop = 3", "min_rel_progress = 'x'", "model_type = ?",
        "input_label_cols = []", "input_label_cols = 3", "learn_rat = 1", "warm_start = 3", "save = 'x'",
    ],
)  # fmt: skip
def test_options_that_would_change_the_model_are_errors(option):
    name = option.split(" ")[0]
    message, _ = error(f"CREATE MODEL m OPTIONS (model_type = 'logistic_reg', {option}) AS SELECT 1, 2")
    assert any(word in message for word in (name, "model_type", "a column name", "num_trials"))


@pytest.mark.parametrize(
    ("option", "setting", "name"),
    [
        ("category_encoding_method = 'LABEL_ENCODING'", "encode = onehot", "encode"),
        ("learn_rate_strategy = 'CONSTANT'", "decay = 0.5", "decay"),
        ("input_label_cols = ['a']", "label = 'b'", "label"),
        ("auto_class_weights = true", "class_weights = [('a', 2)]", "class_weight"),
        ("auto_class_weights = true", "class_weight = balanced", "class_weight"),
    ],
)
def test_options_that_set_one_thing_exclude_each_other(option, setting, name):
    for pair in ((option, setting), (setting, option)):
        message, _ = error(f"CREATE MODEL m OPTIONS (model_type = 'svm', {', '.join(pair)}) AS SELECT 1, 2")
        first, second = (one.split(" ")[0] for one in pair)
        assert f"{first} and {second} both set {name}" in message


def test_labels_are_those_of_the_rows_or_of_the_model():
    script = "CREATE MODEL m OPTIONS (model_type = 'linear_reg', labels = [{}]) AS SELECT y, x FROM t"
    assert (one(script.format("'y'")).label, one(script.format("'y'")).notes) == ("y", ())
    found = one(script.format("('team', 'a'), ('cost', 'b')"))
    assert (found.label, found.notes) == (None, ("option labels has no effect here",))
    several = one(script.format("'x', 'y'"))
    assert (several.label, several.settings) == (None, {"labels": ("x", "y")})  # a multi-label model
    assert one(script.replace("[{}]", "tags")).settings == {"labels": ("tags",)}
    twice = error(script.replace("[{}]", "tags, input_label_cols = ['x', 'y']"))[0]
    assert "input_label_cols and labels both set labels" in twice or "labels and input_label_cols both set" in twice


def test_where_nobody_names_the_label_it_is_called_so():
    found = one("CREATE MODEL m OPTIONS (model_type = 'linear_reg') AS SELECT Label, x FROM t")
    assert (found.label_of(["Label", "x"]), found.label_of(["a", "x"])) == ("Label", "x")
    assert one("SELECT label, x FROM t TRAIN BY linear").label_of(["label", "x"]) == "x"
    message, _ = error("CREATE MODEL m (a INT64) OPTIONS (model_type = 'linear_reg') AS SELECT 1")
    assert message.endswith("expected OPTIONS (model_type = …), got (")
