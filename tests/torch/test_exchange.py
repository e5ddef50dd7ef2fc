"""Ranks that exchange rows: as the plan says, none lost or doubled, whatever dies, lies or fills up."""

import exchanged
import pytest
import torch.distributed
from patience import PATIENCE

from corgipile.orders import Exchange

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")


@pytest.mark.parametrize(("world", "cases"), [(4, exchanged.CASES), (2, exchanged.HUGE)])
def test_ranks_have_what_the_plan_says(tmp_path, world, cases):
    ranks = exchanged.run(exchanged.run_cases, tmp_path, world, cases)
    for number, (_, rows, _, fraction, epochs) in enumerate(cases):
        before = None
        for epoch in range(epochs + 1):
            parts = [rank[number][epoch] for rank in ranks]
            assert sorted(row for part in parts for row in part) == list(range(rows))
            if before is not None:
                changed = [part != old for part, old in zip(parts, before, strict=True)]
                assert any(changed) == (fraction > 0)
            before = parts


@pytest.mark.parametrize("swaps", [1, 4, 9])
def test_a_rank_that_is_killed_loses_no_row(tmp_path, swaps):
    """Each of three exchanges has five messages; the last says that all is there."""
    ended = exchanged.run(exchanged.run_until_killed, tmp_path, 3, 1, swaps)
    assert ended[1] is None
    for rank in (0, 2):
        assert f"rank {rank} of 3 waited" in ended[rank]["error"]
        assert "of rank 1, which closed the connection" in ended[rank]["error"]
        assert ended[rank]["seconds"] < PATIENCE  # for which it would wait for one that lives
        assert abs(ended[rank]["epoch"] - swaps // 5) <= 1
    restarted = exchanged.run(exchanged.run_until_killed, tmp_path, 3, -1, 0)
    assert len({one["began"] for one in restarted}) == 1
    assert restarted[0]["began"] >= max(ended[rank]["epoch"] for rank in (0, 2))
    plan, epoch = Exchange(301, 3, 0.4), restarted[0]["epoch"]
    assert epoch == restarted[0]["began"] + 3
    for rank, one in enumerate(restarted):
        assert one["error"] == ""
        assert sorted(one["rows"]) == sorted(plan.owned(rank, epoch).tolist())


def test_what_cannot_be_is_an_error_that_says_whose_it_is(tmp_path):
    hows = ("garbage", "sum", "disk", "length", "epoch", "silent", "full")
    mine, its = zip(*(exchanged.run(exchanged.run_bad, tmp_path, 2, how) for how in hows), strict=True)
    garbage, total, disk, length, epoch, silent, full = mine
    assert "PeerFailed: rank 1 sent rank 0 [" in garbage["error"]
    for sums in (total, disk):
        assert "rank 1 sent rank 0 rows that do not match their checksums: damaged on its disk or in" in sums["error"]
    assert "whose lengths do not add up" in length["error"]
    assert "rank 1 sent rank 0 [" in epoch["error"]
    assert "for headers after epoch 0 of rank 1, which sent nothing" in silent["error"]
    assert 1 <= silent["seconds"] < PATIENCE
    assert "of rank 1, which" in full["error"]
    assert "WriteFailed: cannot write" in its[-1]["error"]
    assert "File too large" in its[-1]["error"]
    assert all(one["same"] for one in [*mine, its[-1]])


def test_ranks_go_on_together_after_any_stop(tmp_path):
    ranks = exchanged.run(exchanged.run_restarts, tmp_path, 2)
    assert [rank["back"] for rank in ranks] == [True, True]
    assert [rank["epochs"] for rank in ranks] == [[2, 3], [2, 3]]
    assert ranks[0]["state"] == ranks[1]["state"]
    for rank in ranks:
        seed, gone, other, part = rank["errors"]
        assert "BadArgument: rank" in seed
        assert "a different seed" in seed
        assert gone == "StateMismatch: state must be of epoch 3, the epoch of the part on disk, got 0"
        assert other == "StateMismatch: state must have seed 4, got 3"
        assert "is the part of rank" in part
