"""Rank and world are found when asked for; a copy keeps what was given, not what was found."""

import pickle

import pytest
import torch.distributed

from corgipile.errors import BadArgument
from corgipile.torch.rank import RankFinder


def test_what_is_given_comes_first_then_the_launcher(monkeypatch):
    assert RankFinder().find() == (0, 1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "5")
    assert RankFinder().find() == (3, 5)
    assert RankFinder(0, 2).find() == (0, 2)


def test_an_initialised_group_comes_before_the_launcher(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "5")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert RankFinder().find() == (1, 2)


def test_a_copy_finds_its_own_place(monkeypatch):
    places = RankFinder()
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "5")
    copy = pickle.loads(pickle.dumps(places))  # noqa: S301
    assert copy.find() == (3, 5)
    monkeypatch.delenv("RANK")
    assert copy.find() == (0, 1)


def test_mistakes():
    with pytest.raises(BadArgument, match="given together, got rank 1 and world None"):
        RankFinder(rank=1)
    with pytest.raises(BadArgument, match="rank 2 of world 2"):
        RankFinder(2, 2)
