"""Work on many columns grows with their number, not with its square: counted, since times depend on the machine."""

import pyarrow as pa
import pytest

import corgipile as cp
from corgipile.errors import MissingColumn
from corgipile.features.choose import require
from corgipile.features.fit import chosen_columns
from corgipile.loader.buffer import Field
from corgipile.tables.columns import by_column

COLUMNS = 500


class Counted:
    """A schema that counts how often all of its names are listed."""

    def __init__(self, schema):
        self._schema, self.listed = schema, 0

    @property
    def names(self):
        self.listed += 1
        return self._schema.names

    def __iter__(self):
        return iter(self._schema)

    def __getattr__(self, name):
        return getattr(self._schema, name)


@pytest.fixture
def rows():
    return pa.table({f"x{at}": [0.0, 1.0] for at in range(COLUMNS)})


def test_names_are_listed_once_for_all_columns(rows):
    schema = Counted(rows.schema)
    require(schema, rows.column_names)
    with pytest.raises(MissingColumn):
        require(schema, ["y"])
    assert chosen_columns(schema, "numeric", None).names == tuple(rows.column_names)
    assert schema.listed < 10


def test_no_names_are_listed_for_a_column_of_a_wrapped_table(rows):
    class Wrapper:
        columnar = True

        def __init__(self, table):
            self.table = table
            self.table.schema = Counted(table.schema)

    wrapped = Wrapper(cp.open(rows))
    assert all(by_column(wrapped, name) for name in rows.column_names)
    assert wrapped.table.schema.listed == 0


def test_places_of_columns_in_a_row_are_added_up():
    field = Field("x", ("a", "b", "c"), "f4", (6,), (1, 2, 3))
    assert field.begins == (0, 1, 3)
