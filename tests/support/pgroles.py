"""Roles shared by the tests of rights, and a training to call."""

# ruff: noqa: S608  # tests write SQL

ROLES = ("owner", "member", "user", "reader", "replacer", "stranger")


def trains(more="", source="seen"):
    """Write a query that trains for an epoch."""
    return f"SELECT count(*) FROM corgipile.train('{source}', 'logistic', 'x', 'label', epochs => 1{more})"
