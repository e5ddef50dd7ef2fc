"""Loaders with the faults of public bugs are named, and right loaders have none."""

import public_bugs as bugs
import pytest

from corgipile.quality import audit_loader

LIMITS = {"id": "id", "world": (2, 1), "max_deff": 1.5, "exactly_once": True, "memory": False}
MIXED = {"source": "source", "weights": {"a": 0.7, "b": 0.3}}
BUGS = {
    "datasets#7901": (bugs.LostBuffer, {}, "rows lost on resume"),
    "datasets#8308": (bugs.FrozenState, {}, "rows repeated on resume"),
    "datasets#7538": (bugs.SkippedChunk, {}, "rows lost on resume"),
    "datasets#8194": (bugs.OneShard, {}, "uneven batches"),
    "webdataset#453": (bugs.Resampled, {}, "repeated rows"),
    "torchdata#1437": (bugs.FinishingEpoch, {}, "empty epoch after resume"),
    "Megatron-Bridge#5637": (bugs.OwnShard, {}, "rows lost on resume"),
    "torchtitan#816": (bugs.MissingRanks, {"world": (4, 2)}, "rows repeated on resume"),
    "prime-rl#1035": (bugs.FirstRank, {}, "rows lost on resume"),
    "litData#402": (bugs.ShortBatches, {"workers": (0, 2)}, "wrong length"),
    "streaming#658": (bugs.Stretches, MIXED, "mixture off its weights"),
    "ray#61391": (bugs.OneSeed, {}, "same permutation"),
}
RIGHT = {
    "full shuffle": (bugs.Right, {"world": (3, 2), "resume": True, "memory": True}),
    "block shuffle": (bugs.Blocks, {"resume": True}),
    "riffle": (bugs.riffle, {}),
    "mixture": (bugs.Mixture, {"resume": True, **MIXED}),
    "tensor-parallel pair": (bugs.pair, {"world": (4, 2), "tp": 2, "resume": True}),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_public_bug_is_named(bug):
    make, settings, name = BUGS[bug]
    audit = audit_loader(make, **LIMITS | settings)
    assert name in [fault.name for fault in audit.faults], str(audit)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_loader_has_no_fault(name):
    make, settings = RIGHT[name]
    audit = audit_loader(make, **LIMITS | settings)
    assert not audit.faults, str(audit)
