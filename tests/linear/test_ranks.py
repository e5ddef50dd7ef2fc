"""Settings that training by ranks supports and refuses."""

from types import SimpleNamespace

import numpy as np
import pytest

from corgipile.errors import BadArgument
from corgipile.linear.train import train_among
from corgipile.settings import TrainArguments

TABLE = {"x": np.arange(60.0) - 30, "label": (np.arange(60) >= 30).astype(np.int32)}


def among(sync="batch", world=2, **settings):
    alone = SimpleNamespace(rank=0, world=world, sync=sync, sum=lambda values, what: values)
    given = {"batch_size": 6, "learning_rate": 0.01, **settings}
    return train_among(TrainArguments(TABLE, **given).checked(), alone)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"step": "adagrad", "learning_rate": None}, "mean gradients"),
        ({"l1": 0.1}, "mean gradients"),
        ({"average": True}, "mean gradients"),
        ({"batch_size": 7}, "7 rows do not divide among 2 ranks"),
        ({"on_bad": "skip"}, "on_bad='raise'"),
        ({"sync": "never"}, "sync must be one of batch, epoch"),
    ],
)
def test_what_does_not_go_together_is_said(settings, why):
    with pytest.raises(BadArgument, match=why):
        among(**settings)


def test_a_share_is_learnt_once():
    assert among(epochs=3).history[-1]["rows"] == 30
    assert among(sync="epoch", world=7).history[-1]["rows"] == 9
    assert among(world=1).history[-1]["accuracy"] == 1
