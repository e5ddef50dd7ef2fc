"""The settings of training have the same defaults wherever they are given: Python, the command line, SQL."""

import inspect
import re
from pathlib import Path

import pytest

from corgipile import compare, train
from corgipile.cli.compare import command as cli_compare
from corgipile.cli.train import command as cli_train

SQL = Path(__file__).parents[2] / "postgres" / "sql" / "corgipile--0.1--0.2.sql"
# As scikit-learn has them, whose users the estimators are for; and what comparing or SQL cannot leave open.
OTHERWISE = {
    "estimators": {"epochs", "l2", "model"},
    "compare": {"learning_rate", "order"},
    "cli compare": {"learning_rate", "order"},
    "sql": {"learning_rate", "intercept"},
}


def defaults(function):
    return {
        name: found.default
        for name, found in inspect.signature(function).parameters.items()
        if found.default is not inspect.Parameter.empty
    }


def in_sql():
    """Return the defaults of corgipile.train as SQL writes them."""
    text = SQL.read_text()
    arguments = text[text.index("CREATE FUNCTION corgipile.train(") :].partition("OUT ")[0]
    return dict(re.findall(r'^\s*"?(\w+)"? [\w\[\]]+ DEFAULT (.+?),$', arguments, re.MULTILINE))


@pytest.mark.parametrize("where", ["estimators", "compare", "cli train", "cli compare"])
def test_hosts_agree(where):
    if where == "estimators":
        pytest.importorskip("sklearn")
        from corgipile.linear.estimators import CorgiClassifier  # noqa: PLC0415

        found = defaults(CorgiClassifier.__init__)
    else:
        found = defaults({"compare": compare, "cli train": cli_train, "cli compare": cli_compare}[where])
    wanted = defaults(train)
    shared = (found.keys() & wanted.keys()) - OTHERWISE.get(where, set())
    assert len(shared) > 6
    assert {name: found[name] for name in shared} == {name: wanted[name] for name in shared}


def test_sql_agrees():
    found, wanted = in_sql(), defaults(train)
    shared = (found.keys() & wanted.keys()) - OTHERWISE["sql"]
    assert shared > {"epochs", "decay", "l2", "batch_size", "seed", "tolerance", "order"}
    for name in shared - {"order"}:
        said = found[name].strip("'")
        assert said == "NULL" if wanted[name] is None else float(said) == wanted[name], name
    assert found["order"] == "'balanced'"  # Riffle balanced by the label, as "auto" is where the label can be read
