"""Plans, models and saved states of earlier releases: the same rows, the same bits, and they still load."""

import json

import numpy as np
import pytest
from pinned import HERE, MODELS, ORDERS, bits, plan, saved, stored, table, tail, trained

import corgipile as cp
from corgipile.errors import StateMismatch

PINS = json.loads((HERE / "pins.json").read_text())
STATES = {name: json.loads((HERE / f"{name}.json").read_text()) for name in ("states", "segments")}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("pinned"))


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_visits_the_rows_it_always_did(path, name):
    assert plan(path, name) == PINS["plans"][name]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_bits_it_always_had(path, name):
    assert bits(trained(path, name)) == PINS["models"][name]


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("form", STATES)
def test_a_state_of_an_earlier_release_goes_on(path, name, form):
    version, own = STATES[form][name]["order"].get("version", 1), getattr(ORDERS[name], "version", 1)
    if form == "states" and version != own:
        with pytest.raises(StateMismatch, match=f"belongs to version {version} of order .*, this is version {own}"):
            tail(path, name, STATES[form][name])
    else:
        assert tail(path, name, STATES[form][name]) == PINS["tails"][name]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_an_earlier_release_loads_and_goes_on(path, name):
    model = cp.load(saved(name))
    assert bits(model) == PINS["saved"][name]
    assert len(model.predict(table())) == len(table())
    settings = {"model": name, "features": ["x"], **MODELS[name]}
    again = cp.train(path, epochs=1, order="riffle", warm_start=model, learning_rate=0.01, **settings)
    assert len(again.history) == 3
    assert np.isfinite(again.history[-1]["loss"])
