"""Fixtures of the command line tests."""

import pytest

from corgipile.datasets import higgs_like


@pytest.fixture(scope="session")
def higgs(tmp_path_factory):
    """Return the paths of a training table and a test table."""
    folder = tmp_path_factory.mktemp("higgs")
    higgs_like(folder / "t.arrow", 20_000, test=folder / "test.arrow", test_rows=2000)
    return str(folder / "t.arrow"), str(folder / "test.arrow")
