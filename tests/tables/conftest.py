"""Fixtures of all table tests: rows of all types, damage to files, and the table laws."""

import pytest
from columns import make_rows
from hypothesis import strategies as st

from corgipile.tables import open as open_table
from corgipile.testing import check_damaged, check_layout, check_manners, check_rows


@st.composite
def _damage(draw, data):
    """Draw a damaged copy of bytes: changed, removed, doubled, or truncated."""
    broken = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        last = max(len(broken) - 1, 0)
        # Metadata, where damage matters most, is at both ends.
        at = draw(st.integers(0, last) | st.integers(max(last - 800, 0), last) | st.integers(0, min(last, 800)))
        kind = draw(st.sampled_from(["byte", "byte", "byte", "word", "cut", "double", "end"]))
        if kind == "byte":
            broken[at : at + 1] = bytes([draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))])
        elif kind == "word":
            broken[at : at + 4] = draw(st.sampled_from([b"\xff" * 4, b"\xff\xff\xff\x7f", bytes(4), b"\x10\0\0\0"]))
        elif kind == "cut":
            del broken[at : at + draw(st.integers(1, 40))]
        elif kind == "double":
            broken[at:at] = broken[at : at + draw(st.integers(1, 40))]
        else:
            del broken[at:]
    return bytes(broken)


def check_survives(path, data, format, **options):  # noqa: A002
    """Check that a damaged file is either read, or rejected with a CorgiPileError."""
    path.write_bytes(data)
    check_damaged(path, lambda: open_table(path, format=format, **options))


@pytest.fixture(scope="session")
def laws():
    return check_rows


@pytest.fixture(scope="session")
def layout_law():
    return check_layout


@pytest.fixture(scope="session")
def manners():
    return check_manners


@pytest.fixture(scope="session")
def damage():
    return _damage


@pytest.fixture(scope="session")
def survives():
    return check_survives


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="session")
def rows_of():
    return make_rows
