"""h_D by a module's gradients: that of the gradients themselves where all are looked at, and as far off as it says."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from corgipile.errors import BadArgument
from corgipile.quality import h_d, h_d_of_gradients
from corgipile.torch import gradients, h_d_of_module

BLOCK = 10
RNG = np.random.default_rng(3)
LABELS = np.arange(400) * 3 // 400
X = (RNG.normal(size=(400, 6)) + LABELS[:, None] * 0.7).astype(np.float32)
TABLE = pa.table({"x": list(X), "label": LABELS})
CUTS = np.arange(0, 401, BLOCK)


def batch(rows):
    return torch.tensor(np.stack(rows["x"].to_numpy())), torch.tensor(rows["label"].to_numpy())


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))


def exact(module, rows):
    """Return each row's gradient, one after another, by autograd."""
    module.eval()
    given, target = batch(rows)
    made = []
    for one, wanted in zip(given, target, strict=True):
        found = torch.autograd.grad(nn.functional.cross_entropy(module(one[None]), wanted[None]), module.parameters())
        made.append(torch.cat([part.ravel() for part in found]).double().numpy())
    return np.array(made)


@pytest.fixture(scope="module")
def truth():
    return h_d(exact(network(), TABLE), CUTS)


def estimate(seed, **more):
    return h_d_of_module(TABLE, BLOCK, network(), nn.functional.cross_entropy, batch, seed=seed, **more)


@pytest.mark.parametrize("folded", [1 << 13, 64])
def test_of_all_rows_only_the_projection_errs(truth, folded, monkeypatch):
    monkeypatch.setattr(gradients, "MAX_FOLDED", folded)
    found = [estimate(seed, numbers=64, blocks=40, rows=BLOCK) for seed in range(20)]
    values, errors = np.array([one[:2] for one in found]).T
    assert (found[0].blocks, found[0].rows) == (40, BLOCK)
    assert abs(values.mean() - truth) < 4 * values.std() / 20**0.5 + 0.01 * truth
    assert 0.5 < errors.mean() / values.std() < 2


def test_samples_are_as_far_off_as_they_say(truth):
    found = [estimate(seed, numbers=128, blocks=20, rows=3) for seed in range(40)]
    values, errors = np.array([one[:2] for one in found]).T
    assert abs(values.mean() - truth) < 4 * values.std() / 40**0.5 + 0.03 * truth
    assert 0.6 < errors.mean() / values.std() < 1.7
    assert (np.abs(values - truth) < 2.5 * errors).mean() > 0.85


def test_it_is_that_of_the_gradients_themselves():
    module = network()
    wanted = h_d_of_gradients(TABLE, BLOCK, lambda rows: exact(module, rows), blocks=20, seed=5)
    assert abs(estimate(5, numbers=1 << 14, blocks=20).value / wanted.value - 1) < 0.02


def test_the_module_is_left_as_it_was_and_the_same_comes_again():
    module = network()
    module[3].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = [h_d_of_module(TABLE, BLOCK, module, nn.functional.cross_entropy, batch, blocks=10) for _ in range(2)]
    assert found[0] == found[1]
    assert [one.training for one in module] == [True, True, True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(one.grad is None for one in module.parameters())


def test_frozen_weights_are_left_out():
    module = network()
    for one in module[0].parameters():
        one.requires_grad_(requires_grad=False)
    found = h_d_of_module(TABLE, BLOCK, module, nn.functional.cross_entropy, batch, numbers=1 << 14, blocks=20)
    kept = 6 * 8 + 8
    wanted = h_d_of_gradients(TABLE, BLOCK, lambda rows: exact(network(), rows)[:, kept:], blocks=20)
    assert found.value == pytest.approx(wanted.value, rel=0.03)


def test_bad_input():
    def of(**more):
        given = {"module": network(), "loss": nn.functional.cross_entropy, "batch": batch, **more}
        return h_d_of_module(TABLE, given.pop("block", BLOCK), **given)

    with pytest.raises(BadArgument, match="must have weights"):
        of(module=nn.Tanh())
    with pytest.raises(BadArgument, match="numbers"):
        of(numbers=3)
    with pytest.raises(BadArgument, match=r"tensor of .* rows"):
        of(batch=lambda rows: (torch.zeros(3, 6), torch.zeros(3)))
    with pytest.raises(BadArgument, match=r"tensor of .* rows"):
        of(batch=lambda rows: ([1], [2]))
    with pytest.raises(BadArgument, match="NaN or infinity"):
        of(batch=lambda rows: (torch.full((len(rows), 6), torch.nan), batch(rows)[1]))
    with pytest.raises(BadArgument, match="two blocks"):
        of(block=5000)
    with pytest.raises(BadArgument, match="groups"):
        h_d_of_gradients(TABLE, BLOCK, lambda rows: np.zeros((len(rows), 3)), groups=2)
