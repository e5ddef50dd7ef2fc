"""Arguments of loaders: declared once, typed, documented, and the same for Loader and CorgiPileDataset."""

import ast
import inspect
import pickle
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import corgipile as cp
from corgipile.loader import loader
from corgipile.loader.options import Options, ReadOptions

ROWS = pa.table({"x": np.arange(40.0), "z": np.arange(40.0), "y": np.arange(40) % 2})
SHARED = {field.name for field in fields(Options)}


def kinds():
    torch = pytest.importorskip("corgipile.torch")
    return cp.Loader, torch.CorgiPileDataset


def test_signatures_show_every_argument_and_docstrings_describe_it():
    for kind in kinds():
        parameters = inspect.signature(kind).parameters
        described = inspect.getdoc(kind).partition("Args:\n")[2].partition("\n\n")[0]
        assert parameters.keys() >= SHARED
        for name, one in parameters.items():
            assert one.annotation is not one.empty
            assert described.count(f"    {name}: ") == 1, name
    assert inspect.signature(cp.Loader).parameters["batch_size"].default == 256
    assert inspect.signature(kinds()[1]).parameters["memory"].default == "64MB"
    assert next(iter(inspect.signature(cp.Loader).parameters)) == "table"


def test_a_function_that_is_called_with_many_values_gets_one():
    functions = [one for one in ast.walk(ast.parse(inspect.getsource(loader))) if isinstance(one, ast.FunctionDef)]
    assert max(len(one.args.args + one.args.kwonlyargs) for one in functions) <= 12


@pytest.mark.parametrize(
    ("word", "meant"),
    [("batchsize", "batch_size"), ("colums", "columns"), ("feature", "features"), ("orders", "order")],
)
def test_an_unknown_keyword_names_the_one_meant(word, meant):
    for kind in kinds():
        with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) got .*'{word}'; did you mean {meant}\?"):
            kind(ROWS, **{word: 1})


def test_calls_without_a_table_or_with_two_name_the_class():
    for kind, arguments in ((cp.Loader, ()), (cp.Loader, (ROWS, 4)), (kinds()[1], ())):
        with pytest.raises(TypeError, match=rf"{kind.__name__}\(\)"):
            kind(*arguments)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"seed": "1"}, "seed must be a whole number, got '1'"),
        ({"prefetch": 65}, "prefetch must be a whole number of 0 to 64, got 65"),
        ({"dtype": "int8", "label": "y"}, "dtype must be 'float32' or 'float64', got 'int8'"),
        ({"missing": "mean"}, "missing='mean' has no effect without features= or label="),
        ({"global_batches": True}, "global_batches must be"),
    ],
)
def test_both_check_alike(given, message):
    for kind in kinds():
        with pytest.raises(cp.errors.BadArgument, match=message):
            kind(ROWS, **{"batch_size": 4, **given})


def test_rows_without_batches_are_for_datasets():
    with pytest.raises(cp.errors.BadArgument, match="batch_size must be a whole number of at least 1, got None"):
        cp.Loader(ROWS, batch_size=None)
    assert len(list(kinds()[1](ROWS))) == 40


def test_settings_make_the_same_loader_again():
    first = cp.Loader(
        ROWS, batch_size=np.int64(4), features="numeric", label="y", seed=np.int8(3), skip=iter([(0, 1), 7])
    )
    assert first.settings.keys() == inspect.signature(cp.Loader).parameters.keys() - {"table"}
    assert (first.settings["batch_size"], first.settings["skip"]) == (4, ((0, 1), 7))
    wanted = [batch["features"].tolist() for batch in first]
    for again in (cp.Loader(ROWS, **first.settings), pickle.loads(pickle.dumps(first))):  # noqa: S301
        again.set_epoch(0)
        assert [batch["features"].tolist() for batch in again] == wanted


def test_what_workers_get_holds_neither_source_nor_functions_of_features():
    dataset = kinds()[1](ROWS, batch_size=4, features=lambda schema: ["x", "z"], label="y", seed=2)
    again = pickle.loads(pickle.dumps(dataset))  # noqa: S301
    assert [batch["features"].tolist() for batch in again] == [batch["features"].tolist() for batch in dataset]
    assert {field.name for field in fields(ReadOptions)} == vars(dataset._settings.reading).keys()


@pytest.mark.parametrize("kind", ["arrow", "lz4", "parquet", "csv"])
def test_equal_tables_are_read_alike_whatever_ran_before(tmp_path, kind):
    rows = pa.table({"x": np.arange(5000.0), "words": [["a"] * (n % 3) for n in range(5000)], "y": np.arange(5000) % 7})
    path = tmp_path / f"rows.{kind}"
    if kind == "csv":
        rows = rows.drop_columns(["words"])
        csv.write_csv(rows, path)
    elif kind == "parquet":
        pq.write_table(rows, path, row_group_size=1500)
    else:
        cp.convert(rows, path, to="arrow", record_batch=1500, compression="lz4" if kind == "lz4" else None)
    used, fresh = cp.open(path, spill=tmp_path), cp.open(path, spill=tmp_path)
    for how in (
        {"order": "full", "memory": "3MB"},
        {"features": ["x"], "label": "y"},
        {"batch_size": 7, "prefetch": 0},
    ):
        list(cp.Loader(used, **how))
    first, second = (cp.Loader(table, batch_size=64, memory="1MB", label="y", seed=1) for table in (used, fresh))
    assert first.state_dict() == second.state_dict()
    assert first.feeder.fitted.way == second.feeder.fitted.way
    assert first.feeder.unbuffered == second.feeder.unbuffered
    pairs = list(zip(first, second, strict=True))
    assert all(repr(one) == repr(other) for one, other in pairs)
    assert first.stats.bytes_read == second.stats.bytes_read


def test_an_encoding_brings_its_label_to_the_order():
    encoding = cp.Loader(ROWS, features=["x"], label="y").encoding
    orders = [kind(ROWS, features=encoding, batch_size=4, memory="64MB").order for kind in kinds()]
    assert [order.balance for order in orders] == ["y", "y"]
