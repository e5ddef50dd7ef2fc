"""The statements of BigQuery ML's documentation on linear and logistic regression, as they stand, on small tables."""

# ruff: noqa: E501, S608  # tests write SQL

from typing import get_args

import pytest

from corgipile.errors import BadModelFile, CorgiPileError

pytest.importorskip("duckdb")

from corgipile.linear.model import unpack
from corgipile.settings import Solver
from corgipile.sql import connect
from corgipile.sql.engines.duckdb.expressions import HIDDEN, MAX_LENGTH, check_expressions

TABLES = """
CREATE SCHEMA ml_datasets; CREATE SCHEMA samples; CREATE SCHEMA bqml_tutorial; CREATE SCHEMA census; CREATE SCHEMA mydataset;
CREATE TABLE ml_datasets.penguins AS SELECT ['Adelie', 'Gentoo', 'Chinstrap'][1 + i % 3] AS species,
    ['Biscoe', 'Dream', 'Torgersen'][1 + i // 3 % 3] AS island, 40.0 + i % 11 AS culmen_length_mm, 17.0 + i % 7 / 7 AS culmen_depth_mm,
    if(i % 50 = 3, NULL, 200.0 + i % 19) AS flipper_length_mm, if(i % 40 = 0, NULL, 3500.0 + 700 * (i % 3) + 40 * (i % 7)) AS body_mass_g,
    if(i % 30 = 0, NULL, if(i % 2 = 0, 'MALE', 'FEMALE')) AS sex FROM range(344) t(i);
CREATE TABLE samples.natality AS SELECT 5 + i % 3 + i % 20 / 20 AS weight_pounds, i % 2 = 0 AS is_male, 38 + i % 3 AS gestation_weeks,
    20 + i % 20 AS mother_age, i % 4 AS mother_race, ['WY', 'NY'][1 + i % 2] AS state, 1 + i % 2 AS plurality, 2000 + i % 9 AS year FROM range(700) t(i);
CREATE TABLE ml_datasets.census_adult_income AS SELECT 20 + i % 50 AS age, ['Private', 'State-gov', NULL][1 + i % 3] AS workclass,
    ['Married', 'Single'][1 + i // 2 % 2] AS marital_status, 5 + i % 9 AS education_num, ['Sales', 'Craft', 'Tech'][1 + i // 5 % 3] AS occupation,
    30 + i % 20 AS hours_per_week, i AS functional_weight, if(i % 50 + i // 2 % 2 * 20 > 40, ' >50K', ' <=50K') AS income_bracket FROM range(700) t(i);
CREATE TABLE ga_sessions_20160801 AS SELECT {'transactions': if(i % 5 = 0, 1, NULL), 'pageviews': if(i % 9 = 0, NULL, i % 13)} AS totals,
    {'operatingSystem': ['Windows', 'Linux', NULL][1 + i % 3], 'isMobile': i % 2 = 0} AS device,
    {'country': ['Chile', 'Peru', NULL][1 + i % 3]} AS geoNetwork FROM range(400) t(i);
CREATE TABLE ga_sessions_20170701 AS SELECT * FROM ga_sessions_20160801;
CREATE TABLE tlc_yellow_trips_2018 AS SELECT i % 8 + i % 5 / 5 AS tip_amount, i % 8 AS trip_distance, ['1', '2'][1 + i % 2] AS payment_type FROM range(600) t(i);
CREATE TABLE mydataset.mytable AS SELECT i % 7 AS column1, i % 5 AS column2, i % 3 / 3 AS column3, i % 12 AS column4, TIMESTAMP '2020-01-01' + INTERVAL (i) HOUR AS timestamp,
    i % 10 = 0 AS split_col, 2 * (i % 7) + i % 5 AS label, i % 7 + i % 5 > 5 AS custom_label, ['a', 'b', 'c'][1 + i % 3] AS kind, i % 7 AS f1, i % 5 AS f2, i AS f3 FROM range(600) t(i);
"""
SESSIONS = """SELECT IF(totals.transactions IS NULL, 0, 1) AS label, IFNULL(device.operatingSystem, "") AS os, device.isMobile AS is_mobile,
    IFNULL(geoNetwork.country, "") AS country, IFNULL(totals.pageviews, 0) AS pageviews FROM `bigquery-public-data.google_analytics_sample.ga_sessions_*`
    WHERE _TABLE_SUFFIX BETWEEN '20160801' AND '20170630'"""
BIRTHS = "SELECT weight_pounds, is_male, gestation_weeks, mother_age, CAST(mother_race AS STRING) AS mother_race FROM `bigquery-public-data.samples.natality`"
PENGUINS = "SELECT * FROM `bigquery-public-data.ml_datasets.penguins` WHERE body_mass_g IS NOT NULL"
MINE = "CREATE OR REPLACE MODEL `mydataset.mymodel` OPTIONS ({}) AS SELECT {} FROM `mydataset.mytable`"
SAMPLE, CENSUS, PENGUIN = (
    "MODEL `bqml_tutorial.sample_model`",
    "MODEL `census.census_model`",
    "MODEL `bqml_tutorial.penguins_model`",
)
INPUT = "(SELECT * FROM `census.input_data` WHERE dataframe = 'evaluation')"
MODELS = {
    "sample": f"#standardSQL\nCREATE MODEL `bqml_tutorial.sample_model` OPTIONS(model_type='logistic_reg') AS {SESSIONS}",
    "natality": f"CREATE MODEL `bqml_tutorial.natality_model` OPTIONS (model_type='linear_reg', input_label_cols=['weight_pounds']) AS {BIRTHS} WHERE weight_pounds IS NOT NULL AND RAND() < 0.9",
    "penguins": f"CREATE OR REPLACE MODEL `bqml_tutorial.penguins_model` OPTIONS (model_type='linear_reg', input_label_cols=['body_mass_g'], enable_global_explain=TRUE) AS {PENGUINS}",
    "census": """CREATE OR REPLACE VIEW `census.input_data` AS SELECT age, workclass, marital_status, education_num, occupation, hours_per_week, income_bracket,
        CASE WHEN MOD(functional_weight, 10) < 8 THEN 'training' WHEN MOD(functional_weight, 10) = 8 THEN 'evaluation' WHEN MOD(functional_weight, 10) = 9 THEN 'prediction' END AS dataframe
        FROM `bigquery-public-data.ml_datasets.census_adult_income`;
        CREATE OR REPLACE MODEL `census.census_model` OPTIONS (model_type='LOGISTIC_REG', auto_class_weights=TRUE, enable_global_explain=TRUE, data_split_method='NO_SPLIT',
        input_label_cols=['income_bracket'], max_iterations=15) AS SELECT * EXCEPT(dataframe) FROM `census.input_data` WHERE dataframe = 'training'""",
    "taxi": """CREATE TABLE `bqml_tutorial.taxi_tip_input` AS SELECT * EXCEPT(tip_amount), tip_amount AS label FROM `bigquery-public-data.new_york_taxi_trips.tlc_yellow_trips_2018` WHERE tip_amount IS NOT NULL LIMIT 100000;
        CREATE MODEL `bqml_tutorial.hp_taxi_tip_model` OPTIONS (MODEL_TYPE='LINEAR_REG', NUM_TRIALS=4, MAX_PARALLEL_TRIALS=2, L1_REG=HPARAM_RANGE(0, 0.1), L2_REG=HPARAM_CANDIDATES([0, 0.1, 1]),
        HPARAM_TUNING_OBJECTIVES=['R2_SCORE']) AS SELECT * FROM `bqml_tutorial.taxi_tip_input`""",
    "p_values": "CREATE OR REPLACE MODEL `mydataset.tested` OPTIONS (model_type='linear_reg', category_encoding_method='DUMMY_ENCODING', calculate_p_values=TRUE) AS SELECT column1, column2, kind, label FROM `mydataset.mytable`",
    "transform": """CREATE OR REPLACE MODEL `mydataset.transformed` TRANSFORM(ML.FEATURE_CROSS(STRUCT(f1, kind)) AS cross_f, ML.QUANTILE_BUCKETIZE(f3, 4) OVER() AS buckets,
        ML.STANDARD_SCALER(f2) OVER() AS scaled, label) OPTIONS (model_type='linear_reg', input_label_cols=['label']) AS SELECT f1, f2, f3, kind, label FROM `mydataset.mytable`""",
    "weekdays": """CREATE OR REPLACE MODEL mydataset.weekdays TRANSFORM(* EXCEPT(timestamp), IF(EXTRACT(dayofweek FROM timestamp) BETWEEN 2 AND 6, 'weekday', 'weekend') AS dayofweek,
        ML.BUCKETIZE(EXTRACT(HOUR FROM timestamp), [5, 10, 17]) AS hourofday) OPTIONS (input_label_cols=['label'], model_type='linear_reg') AS SELECT label, kind, timestamp FROM `myproject`.mydataset.mytable""",
    "mine": MINE.format("MODEL_TYPE='LINEAR_REG', LS_INIT_LEARN_RATE=.15, L1_REG=1, MAX_ITERATIONS=5, DATA_SPLIT_METHOD='SEQ', DATA_SPLIT_EVAL_FRACTION=0.3, DATA_SPLIT_COL='timestamp'",
        "column1, column2, column3, timestamp, label") + " WHERE column4 < 10",
}  # fmt: skip
STATEMENTS = [
    ("sample", f"SELECT * FROM ML.EVALUATE({SAMPLE}, ({SESSIONS}))"),
    ("sample", f"SELECT country, SUM(predicted_label) AS total_predicted_purchases FROM ML.PREDICT({SAMPLE}, ({SESSIONS})) GROUP BY country ORDER BY total_predicted_purchases DESC LIMIT 10"),
    ("sample", f"SELECT * FROM ML.TRAINING_INFO({SAMPLE})"),
    ("sample", f"SELECT * FROM ML.FEATURE_INFO({SAMPLE})"),
    ("sample", f"SELECT * FROM ML.WEIGHTS({SAMPLE})"),
    ("sample", f"SELECT *, true_positives / (true_positives + false_positives) AS precision FROM ML.ROC_CURVE({SAMPLE})"),
    ("sample", f"SELECT * FROM ML.ROC_CURVE({SAMPLE}, ({SESSIONS}), GENERATE_ARRAY(0.4, 0.6, 0.01))"),
    ("sample", f"SELECT * FROM ML.CONFUSION_MATRIX({SAMPLE}, ({SESSIONS}), STRUCT(0.6 AS threshold))"),
    ("natality", f"SELECT * FROM ML.EVALUATE(MODEL `bqml_tutorial.natality_model`, ({BIRTHS} WHERE weight_pounds IS NOT NULL))"),
    ("natality", f'SELECT predicted_weight_pounds FROM ML.PREDICT(MODEL `bqml_tutorial.natality_model`, ({BIRTHS} WHERE state = "WY"))'),
    ("penguins", f"SELECT * FROM ML.EVALUATE({PENGUIN}, ({PENGUINS}))"),
    ("penguins", f"SELECT * FROM ML.EVALUATE({PENGUIN})"),
    ("penguins", f'SELECT * FROM ML.PREDICT({PENGUIN}, ({PENGUINS} AND island = "Biscoe"))'),
    ("penguins", f"SELECT * FROM ML.EXPLAIN_PREDICT({PENGUIN}, ({PENGUINS} AND island = 'Biscoe'), STRUCT(3 AS top_k_features))"),
    ("penguins", f"SELECT * FROM ML.GLOBAL_EXPLAIN({PENGUIN})"),
    ("penguins", f"SELECT category, weight FROM UNNEST((SELECT category_weights FROM ML.WEIGHTS({PENGUIN}) WHERE processed_input = 'sex'))"),
    ("penguins", f"SELECT * FROM ML.WEIGHTS({PENGUIN}, STRUCT(true AS standardize))"),
    ("penguins", f"SELECT processed_input, c.category, c.weight FROM ML.WEIGHTS({PENGUIN}), UNNEST(category_weights) AS c"),
    ("census", f"SELECT * FROM ML.EVALUATE ({CENSUS}, {INPUT})"),
    ("census", f"SELECT * FROM ML.PREDICT ({CENSUS}, {INPUT})"),
    ("census", f"SELECT * FROM ML.PREDICT({CENSUS}, {INPUT}, STRUCT(0.55 AS threshold))"),
    ("census", f"SELECT * FROM ML.EVALUATE({CENSUS}, {INPUT}, STRUCT(0.55 AS threshold))"),
    ("census", f"SELECT * FROM ML.EXPLAIN_PREDICT({CENSUS}, {INPUT}, STRUCT(3 as top_k_features))"),
    ("census", f"SELECT * FROM ML.GLOBAL_EXPLAIN({CENSUS})"),
    ("census", f"SELECT * FROM ML.CONFUSION_MATRIX({CENSUS})"),
    ("taxi", "SELECT * FROM ML.TRIAL_INFO(MODEL `bqml_tutorial.hp_taxi_tip_model`)"),
    ("taxi", "SELECT * FROM ML.EVALUATE(MODEL `bqml_tutorial.hp_taxi_tip_model`)"),
    ("taxi", "SELECT * FROM ML.PREDICT(MODEL `bqml_tutorial.hp_taxi_tip_model`, (SELECT * FROM `bqml_tutorial.taxi_tip_input` LIMIT 10))"),
    ("p_values", "SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL `mydataset.tested`)"),
    ("transform", "SELECT * FROM ML.PREDICT(MODEL `mydataset.transformed`, (SELECT f1, f2, f3, kind FROM `mydataset.mytable`))"),
    ("transform", "SELECT * FROM ML.EVALUATE(MODEL `mydataset.transformed`, (SELECT f1, f2, f3, kind, label FROM `mydataset.mytable`))"),
    ("transform", "SELECT * FROM ML.WEIGHTS(MODEL `mydataset.transformed`)"),
    ("weekdays", "SELECT * FROM ML.PREDICT(MODEL mydataset.weekdays, TABLE `mydataset.mytable`)"),
    ("mine", "EXPORT MODEL `mydataset.mymodel` OPTIONS (URI='{folder}/model.safetensors')"),
    ("mine", 'ALTER MODEL `mydataset.mymodel` SET OPTIONS (description="my model", friendly_name="mine")'),
    ("mine", "ALTER MODEL IF EXISTS `mydataset.mymodel` SET OPTIONS (labels=[('team', 'a')])"),
    ("mine", "CREATE MODEL IF NOT EXISTS `mydataset.mymodel` OPTIONS (model_type='linear_reg') AS SELECT column1, label FROM `mydataset.mytable`"),
    (None, MINE.format("MODEL_TYPE='LINEAR_REG', DATA_SPLIT_METHOD='CUSTOM', DATA_SPLIT_COL='split_col'", "column1, column2, label, split_col")),
    (None, MINE.format("MODEL_TYPE='LOGISTIC_REG', INPUT_LABEL_COLS=['kind'], AUTO_CLASS_WEIGHTS=TRUE", "column1, column2, kind")),
    (None, MINE.format("MODEL_TYPE='LOGISTIC_REG', INPUT_LABEL_COLS=['kind'], CLASS_WEIGHTS=[STRUCT('a', .2), ('b', .3), ('c', .5)]", "column1, kind")),
    (None, MINE.format("model_type='logistic_reg', input_label_cols=['custom_label'], data_split_method='AUTO_SPLIT', early_stop=TRUE, min_rel_progress=0.005", "column1, column2, custom_label")),
    (None, MINE.format("model_type='linear_reg', learn_rate_strategy='CONSTANT', learn_rate=0.1, fit_intercept=FALSE, l2_reg=0.01", "column1, label")),
    (None, MINE.format("model_type='linear_reg', learn_rate_strategy='LINE_SEARCH', optimize_strategy='BATCH_GRADIENT_DESCENT', model_registry='VERTEX_AI', vertex_ai_model_id='m'", "column1, label")),
    (None, MINE.format("model_type='linear_reg', data_split_method='RANDOM', data_split_eval_fraction=0.1, category_encoding_method='ONE_HOT_ENCODING'", "column1, kind, label")),
    ("mine", "CREATE OR REPLACE MODEL `mydataset.warm` OPTIONS (model_type='linear_reg') AS SELECT column1, label FROM `mydataset.mytable`; CREATE OR REPLACE MODEL `mydataset.warm` OPTIONS (model_type='linear_reg', warm_start=TRUE) AS SELECT column1, label FROM `mydataset.mytable`"),
    ("natality", "DROP MODEL IF EXISTS `mydataset.nothing`; DROP MODEL `bqml_tutorial.natality_model`"),
]  # fmt: skip
EXACTLY = MINE.format("model_type='linear_reg', optimize_strategy='NORMAL_EQUATION'", "column1, label")
REFUSED = {
    **({} if "newton" in get_args(Solver) else {EXACTLY: "NORMAL_EQUATION"}),
    "EXPORT MODEL `mydataset.mymodel` OPTIONS (URI='gs://bucket/path/to/saved_model/')": "gs://",
    "ALTER MODEL `mydataset.mymodel` SET OPTIONS (expiration_timestamp=TIMESTAMP '2030-01-01 00:00:00 UTC')": "expiration_timestamp",
    "CREATE MODEL `mydataset.m` TRANSFORM(ML.NGRAMS(SPLIT(kind, ' '), [1, 2]) AS n, label) OPTIONS (model_type='linear_reg') AS SELECT kind, label FROM `mydataset.mytable`": "TRANSFORM supports",
    f"SELECT * FROM ML.GLOBAL_EXPLAIN({CENSUS}, STRUCT(TRUE AS class_level_explain))": "class_level_explain",
}  # fmt: skip


if EXACTLY not in REFUSED:
    STATEMENTS.append((None, EXACTLY))


@pytest.fixture(scope="module")
def sql():
    with connect() as connection:
        connection.execute(TABLES)
        yield connection


@pytest.fixture(scope="module")
def trained(sql):
    """Return a function that trains a model of the documentation once."""
    done = {None: None}

    def train(name):
        if name not in done:
            done[name] = sql.execute(MODELS[name]).notes
        return done[name]

    return train


@pytest.mark.parametrize("name", MODELS)
def test_models_train(trained, name):
    assert trained(name) is not None


@pytest.mark.parametrize(("model", "statement"), STATEMENTS)
def test_statements_run(sql, trained, tmp_path, model, statement):
    trained(model)
    cursor = sql.execute(statement.replace("{folder}", str(tmp_path)))
    assert cursor.description is None or cursor.fetchall() or "already exists" in cursor.notes[0]


@pytest.mark.parametrize("statement", REFUSED)
def test_other_statements_are_refused_by_name(sql, trained, statement):
    trained("mine"), trained("census")
    with pytest.raises(CorgiPileError, match=REFUSED[statement]):
        sql.execute(statement)


def rows_of(sql, statement):
    return sql.execute(statement).arrow().to_pylist()


def test_attributions_sum_to_predictions(sql, trained):
    trained("penguins")
    rows = rows_of(sql, f"SELECT * FROM ML.EXPLAIN_PREDICT({PENGUIN}, ({PENGUINS}), STRUCT(9 AS top_k_features))")
    for row in rows:
        parts = [one["attribution"] for one in row["top_feature_attributions"]]
        assert [abs(part) for part in parts] == sorted(map(abs, parts), reverse=True)
        assert row["baseline_prediction_value"] + sum(parts) == pytest.approx(row["prediction_value"])
        assert row["predicted_body_mass_g"] == row["prediction_value"]
    mean = sum(row["predicted_body_mass_g"] for row in rows) / len(rows)
    assert mean == pytest.approx(row["baseline_prediction_value"], rel=1e-6)
    assert {one["feature"] for one in row["top_feature_attributions"]} == {
        one["feature"] for one in rows_of(sql, f"SELECT * FROM ML.GLOBAL_EXPLAIN({PENGUIN})")
    }


def test_standardized_weights_are_of_numbers_alone(sql, trained):
    trained("penguins")
    plain, scaled = ({row["processed_input"]: row for row in rows_of(sql, f"SELECT * FROM ML.WEIGHTS({PENGUIN}{how})")} for how in ("", ", STRUCT(true AS standardize)"))  # fmt: skip
    info = {row["input"]: row for row in rows_of(sql, f"SELECT * FROM ML.FEATURE_INFO({PENGUIN})")}
    assert plain["sex"] == scaled["sex"]
    for name in ("culmen_length_mm", "culmen_depth_mm"):
        assert scaled[name]["weight"] == pytest.approx(plain[name]["weight"] * info[name]["stddev"], rel=1e-5)
    moved = sum(
        plain[name]["weight"] * info[name]["mean"]
        for name in ("culmen_length_mm", "culmen_depth_mm", "flipper_length_mm")
    )
    assert scaled["__INTERCEPT__"]["weight"] == pytest.approx(plain["__INTERCEPT__"]["weight"] + moved, rel=1e-6)


def test_weights_of_categories_predict(sql, trained):
    trained("census")
    weights = {row["processed_input"]: row for row in rows_of(sql, f"SELECT * FROM ML.WEIGHTS({CENSUS})")}
    for row in rows_of(sql, f"SELECT * FROM ML.PREDICT({CENSUS}, {INPUT})"):
        score = weights["__INTERCEPT__"]["weight"]
        for name, found in weights.items():
            shares = {one["category"]: one["weight"] for one in found["category_weights"]}
            if shares:
                score += shares["NULL" if row[name] is None else row[name]]
            elif name != "__INTERCEPT__":
                score += found["weight"] * row[name]
        first, second = row["predicted_income_bracket_probs"]
        assert [first["label"], second["label"]] == [" <=50K", " >50K"]
        assert first["prob"] == pytest.approx(1 / (1 + 2.718281828459045**score), abs=1e-5)


def test_unlabelled_rows_are_left_out_and_null_is_the_mean(sql, trained):
    notes = sql.execute(MODELS["penguins"].replace(" WHERE body_mass_g IS NOT NULL", "")).notes
    assert any(note == "9 rows are left out: their label 'body_mass_g' is NULL" for note in notes)
    info = {row["input"]: row for row in rows_of(sql, f"SELECT * FROM ML.FEATURE_INFO({PENGUIN})")}
    assert (info["sex"]["category_count"], info["flipper_length_mm"]["null_count"]) == (2, 7)
    mean = info["flipper_length_mm"]["mean"]
    filled = f"SELECT * REPLACE ({{}} AS flipper_length_mm) FROM ({PENGUINS} LIMIT 9)"
    predicted = [rows_of(sql, f"SELECT predicted_body_mass_g AS p FROM ML.PREDICT({PENGUIN}, ({filled.format(one)}))") for one in (mean, "NULL")]  # fmt: skip
    assert [row["p"] for row in predicted[0]] == pytest.approx([row["p"] for row in predicted[1]])


def test_split_columns_hold_out_rows(sql):
    sql.execute(MODELS["mine"])
    (last,) = rows_of(sql, "SELECT * FROM ML.TRAINING_INFO(MODEL `mydataset.mymodel`) ORDER BY iteration DESC LIMIT 1")
    (found,) = rows_of(sql, "SELECT * FROM ML.EVALUATE(MODEL `mydataset.mymodel`)")
    assert (last["rows"], found["rows"]) == (350, 150)  # the latest 30 % are held out
    assert last["eval_loss"] == pytest.approx(found["loss"], rel=1e-6)
    described = dict(sql.execute("DESCRIBE MODEL `mydataset.mymodel`").fetchall())
    assert described["features"] == '["column1", "column2", "column3"]'


def test_transformed_columns_are_computed_from_the_constants_of_training(sql, trained):
    trained("transform")
    rows = "SELECT f1, f2, f3, kind FROM `mydataset.mytable` WHERE f3 BETWEEN 100 AND 120"
    found = sql.execute(f"SELECT predicted_label FROM ML.PREDICT(MODEL `mydataset.transformed`, ({rows}))").fetchall()
    scaled = "(f2 - avg(f2) OVER ()) / stddev_pop(f2) OVER ()"
    by_hand = f"SELECT f3, f1 || '_' || kind AS cross_f, 'bin_' || (1 + f3 // 150) AS buckets, {scaled} AS scaled FROM mydataset.mytable"
    expected = f"SELECT predict('mydataset.transformed', cross_f, buckets, scaled) FROM ({by_hand}) WHERE f3 BETWEEN 100 AND 120"
    assert found == sql.execute(expected).fetchall()
    assert found == [row[-1:] for row in sql.execute(f"{rows} PREDICT BY `mydataset.transformed`").fetchall()]


@pytest.mark.parametrize(
    "item", ["(SELECT 1)", "[x FOR x IN (FROM mydataset.mytable)]", "f1 IN (TABLE mydataset.mytable)"]
)
def test_transform_contains_no_query(sql, item):
    create = f"CREATE OR REPLACE MODEL bad TRANSFORM ({item} AS x, label) OPTIONS (model_type = 'linear_reg') AS SELECT f1, label FROM mydataset.mytable"
    with pytest.raises(CorgiPileError, match="expressions without queries"):
        sql.execute(create)


def test_stored_expressions_are_checked_again(sql, trained):
    trained("transform")
    content, name = (
        sql.execute("SELECT content FROM corgipile_models WHERE name = 'mydataset.transformed'").fetchone()[0],
        "hostile",
    )
    model = unpack(content)
    sql.execute("CREATE MACRO abs(a) AS (SELECT content FROM read_text('/etc/hostname'))")
    for expression in (
        "(SELECT 1)", "1), (SELECT 2", "f2) FROM mydataset.mytable WHERE (true", "1) UNION SELECT (2", "COLUMNS(*)", "$f",
        "getenv('HOME')", "current_setting('threads')", "repeat('a', 1 << 30)", "nextval('s')", "main.f(1)",
        "json_serialize_plan('FROM ''http://127.0.0.1:9/a''')", "bitstring('1', 1 << 30)", "NULL::DOUBLE[100000]", "f2::INET",
        "f1 COLLATE de", "row_number() OVER ()", "list_reduce([f1], lambda a, b: a || a)", "replace(f1, 'a', 'aa')", "abs(f2)",
        f"{HIDDEN}0 || {HIDDEN}0", "||".join(["f1"] * 101), f"{'nullif(' * 9}f2{', 1)' * 9}", f"length('{'a' * MAX_LENGTH}')", 3,
        "concat_ws(f1, '', '', '')", "CASE CASE f2 WHEN 0 THEN 0 END WHEN 0 THEN 0 WHEN 1 THEN 1 END",
        "case when f2 > 1 then case f2 when 1 then 2 end end", f"{'[' * 9}f2{']::varchar' * 9}",
        "list_filter([1], lambda x: len(list_filter([1], lambda y: x > y)) > 0)",
    ):  # fmt: skip
        model.params["bigquery"]["transform"]["scaled"] = expression
        sql.execute("DELETE FROM corgipile_models WHERE name = ?", [name])
        sql.execute(
            "INSERT INTO corgipile_models SELECT ?, * EXCLUDE (name, content, version), uuid(), ? FROM corgipile_models LIMIT 1",
            [name, model.pack()],
        )
        with pytest.raises(CorgiPileError, match=r"TRANSFORM (of|must)|an expression of TRANSFORM"):
            sql.execute(f"SELECT * FROM ML.PREDICT(MODEL {name}, TABLE mydataset.mytable)").fetchall()
    model.params["bigquery"] = {"feature_info": [{"a": 1}, 3]}
    sql.execute(
        "UPDATE corgipile_models SET content = ?, version = uuid() WHERE name = 'mydataset.transformed'", [model.pack()]
    )
    with pytest.raises(BadModelFile, match="damaged answer for feature_info"):
        sql.execute("SELECT * FROM ML.FEATURE_INFO(MODEL `mydataset.transformed`)")
    sql.execute(
        "UPDATE corgipile_models SET content = ?, version = uuid() WHERE name = 'mydataset.transformed'", [content]
    )
    sql.execute("DELETE FROM corgipile_models WHERE name = ?", [name])
    sql.execute("DROP MACRO abs")


def test_transforms_take_usual_expressions(sql):
    items = [
        "f1 || '_' || upper(kind)", "f2::FLOAT8", "EXTRACT(YEAR FROM DATE '2020-01-31')", "CASE WHEN f2 > 1 THEN 1 END",
        "CASE f1 WHEN 'a' THEN 1 ELSE 2 END", "CASE WHEN f2 > 1 THEN CASE WHEN f3 > 1 THEN 1 END END", "f2 + 1 -- one more",
        "f2 BETWEEN 0 AND 1", "nullif(f2, 0)", "coalesce(f2, 0)", "IF(f2 > 0, 'a', 'b')", "f1 LIKE 'a%'", "trim(f1)",
        "replace(f1, ',', '.')", "f2 ^ 2 + ln(abs(f2) + 1)", "f1 IN ('a', 'b')", "TRY_CAST(f1 AS BIGINT)", "[f2, f3][1]",
        "TIMESTAMP '2020-01-01' + INTERVAL 3 DAY", "f1 IS NULL", "NOT (f2 > 0)", "regexp_extract(f1, '[a-c]')",
    ]  # fmt: skip
    check_expressions(sql.engine.session, {str(i): item for i, item in enumerate(items)})


def test_views_store_no_explanations(sql, trained):
    trained("penguins")
    with pytest.raises(CorgiPileError, match="a view cannot store"):
        sql.execute(f"CREATE VIEW `mydataset.why` AS SELECT * FROM ML.EXPLAIN_PREDICT({PENGUIN}, ({PENGUINS}))")
    with pytest.raises(CorgiPileError, match="computes 'f1', which"):
        sql.execute(
            "CREATE MODEL bad TRANSFORM (*, f1 + 1 AS f1) OPTIONS (model_type = 'linear_reg') AS SELECT f1, label FROM mydataset.mytable"
        )
