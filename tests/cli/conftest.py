"""What tests of several commands need."""

import pytest

from corgipile.datasets import higgs_like


@pytest.fixture(scope="session")
def higgs(tmp_path_factory):
    """Return the names of a table and of another one to test on."""
    folder = tmp_path_factory.mktemp("higgs")
    higgs_like(folder / "t.arrow", 20_000, test=folder / "test.arrow", test_rows=2000)
    return str(folder / "t.arrow"), str(folder / "test.arrow")
