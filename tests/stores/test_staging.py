"""Parts staged from objects of a store that fails now and then."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stagedrows import numbers, texts

from corgipile.exchange import stage


@pytest.mark.parametrize("name", ["numbers.arrow", "texts.parquet"])
def test_parts_have_the_rows_of_objects(objects, tmp_path, name):
    table = numbers(3000) if name == "numbers.arrow" else texts(3000)
    if name == "numbers.arrow":
        with pa.ipc.new_file(objects.root / "bucket" / name, table.schema) as writer:
            writer.write_table(table, 500)
    else:
        pq.write_table(table, objects.root / "bucket" / name, row_group_size=500)
    objects.set(errors=0.1, truncated=0.1, seed=3)
    for by in ("contiguous", "strided", "block", "balanced"):
        label = "label" if by == "balanced" else None
        parts = [
            stage(f"s3://bucket/{name}", tmp_path / f"{by}-{rank}", rank, 3, by=by, label=label) for rank in range(3)
        ]
        found = pa.concat_tables([pa.Table.from_batches([part.table.read(0, len(part.table))]) for part in parts])
        assert found.sort_by("row").equals(table)
