"""The parser accepts any input or reports the position of its error, in bounded time."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlfuzz import check, large, statement

from corgipile.errors import BadStatement
from corgipile.sql.tokens import complete, tokenize


@pytest.mark.parametrize("seed", range(4))
def test_statements_gone_wrong(seed):
    chance = random.Random(seed)  # noqa: S311
    assert sum(check(statement(chance)) > 0 for _ in range(500)) > 100


def test_large_statements_take_no_more_than_their_length():
    start = time.process_time()
    for text in large():
        check(text[:20_000])
    assert time.process_time() - start < 60


@given(st.text())
def test_tokens_lie_in_their_order_and_hold_all_but_gaps(text):
    try:
        tokens = tokenize(text)
    except BadStatement:
        return
    done = 0
    for token in tokens:
        assert done <= token.start < token.stop <= len(text)
        gap = text[done : token.start]
        assert not gap.strip() or "--" in gap or "/*" in gap or "\ufeff" in gap
        done = token.stop
    complete(text)
