"""Settings declared in corgipile.settings reach every host: Python, estimators, commands, models, SQL, documents."""

import inspect
import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, get_args

import pyarrow as pa
import pytest
import typer
from documents import ROOT
from typer.testing import CliRunner

import corgipile as cp
from corgipile.arguments import takes
from corgipile.cli.compare import command as cli_compare
from corgipile.cli.options import with_settings
from corgipile.cli.train import command as cli_train
from corgipile.comparison import CompareArguments
from corgipile.errors import BadArgument
from corgipile.settings import Setting, Settings, TrainArguments, TrainSettings, declared
from corgipile.sizes import whole

SQL = ROOT / "postgres" / "sql" / "corgipile--0.3.sql"


def defaults(function):
    found = inspect.signature(function).parameters.items()
    return {name: one.default for name, one in found if one.default is not inspect.Parameter.empty}


def in_sql():
    """Return the defaults of corgipile.train as SQL writes them."""
    text = SQL.read_text()
    arguments = text[text.index("CREATE FUNCTION corgipile.train(") :].partition("OUT ")[0]
    return dict(re.findall(r'^\s*"?(\w+)"? [\w\[\]]+ DEFAULT (.+?),$', arguments, re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "hosts"), [(TrainArguments, (cp.train, cli_train)), (CompareArguments, (cp.compare, cli_compare))]
)
def test_python_and_the_command_line_agree(arguments, hosts):
    wanted = {name: one.default for name, one in declared(arguments).items() if one.setting.about}
    for host in hosts:
        found = defaults(host)
        assert found.keys() >= wanted.keys()
        assert {name for name in wanted if found[name] != wanted[name]} <= {"order"}  # `compare` lists the orders
    assert not [name for name in wanted if not re.search(rf"\b{name}\b", hosts[0].__doc__)]


def test_a_setting_of_ones_own_is_checked_and_offered():
    @dataclass(kw_only=True)
    class Ours(Settings):
        patience: Annotated[int, Setting("Epochs to wait.", partial(whole, least=0))] = 2

    @takes(Ours)
    def ours(given):
        return given.patience, given.epochs

    app = typer.Typer()

    @app.command()
    @with_settings(Ours)
    def told(table: str, **settings):
        typer.echo(ours(**settings))

    assert "patience: int = 2" in str(inspect.signature(ours))
    assert ours(epochs=3) == (2, 3)
    assert "Epochs to wait." in CliRunner().invoke(app, ["--help"]).output
    assert CliRunner().invoke(app, ["t", "--patience", "7"]).output == "(7, 5)\n"
    with pytest.raises(BadArgument, match="patience must be a whole number of at least 0, got -1"):
        ours(patience=-1)
    with pytest.raises(TypeError, match=r"ours\(\) got an unexpected keyword argument 'patient'"):
        ours(patient=1)


def test_models_say_what_they_were_trained_with():
    rows = pa.table({"x": [-1.0, 1.0] * 20, "label": [0, 1] * 20})
    model = cp.train(rows, epochs=1, tolerance=0.5, on_bad="skip")
    said = {name: model.params[name] for name in declared(TrainSettings) if name != "model"}
    assert said | {"tolerance": 0.5, "on_bad": "skip", "epochs": 1, "features": ["x"]} == said


def test_sql_agrees():
    found, wanted = in_sql(), declared(TrainSettings)
    shared = (found.keys() & wanted.keys()) - {"intercept", "order", "model", "label"}
    assert shared == {
        "epochs",
        "decay",
        "l2",
        "batch_size",
        "seed",
        "tolerance",
        "standardize",
        "average",
        "step",
        "l1",
        "max_norm",
        "learning_rate",
        "weight",
        "patience",
        "hash_bits",
        "ngrams",
    }
    for name in shared:
        said, default = found[name], wanted[name].default
        assert (
            said == ("NULL" if default is None else str(default).lower())
            or said.strip("'") == default
            or float(said) == default
        ), name
    assert found["order"] == "'auto'"
    assert found["intercept"] == "true"


def bounds(setting):
    """Return the values that a setting's check allows."""
    given = getattr(setting.check, "keywords", {})
    words = {"above": "> {}", "least": "≥ {}", "most": "≤ {}"}
    if "kind" in given:
        return ", ".join(f"`{one}`" for one in get_args(given["kind"]))
    return ", ".join(words[name].format(to) for name, to in given.items() if to < 1 << 31)


def documented():
    """Return the table of settings in docs/reference/settings.md."""
    from corgipile.linear.estimators import CorgiClassifier  # noqa: PLC0415

    others = {"estimators": defaults(CorgiClassifier), "compare": defaults(cp.compare), "SQL": in_sql()}
    yield "| setting | default | may be | |"
    yield "|---|---|---|---|"
    for name, one in declared(TrainSettings).items():
        cells = [f"{one.default}"]
        for host, found in others.items():
            said = str(found.get(name, "none")).strip("'")
            if said.lower() not in (str(one.default).lower(), "null", "0", "none") and "(" not in said:
                cells.append(f"{host}: {said}")
        yield f"| `{name}` | {'; '.join(cells)} | {bounds(one.setting)} | {one.setting.about} |"


def test_the_reference_lists_them():
    pytest.importorskip("sklearn")
    assert "\n".join(documented()) + "\n" in (ROOT / "docs" / "reference" / "settings.md").read_text()
