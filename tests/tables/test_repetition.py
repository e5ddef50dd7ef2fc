"""Rows of lists are located in pages by their repetition levels."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgipile.tables.formats.parquet.lengths import lengths_of
from corgipile.tables.io.files import File

SHORT = [[1] * (at % 5) for at in range(50_000)]
LONG = [list(range(at)) for at in (700_000, 0, 3, 50_000)]


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.list_(pa.int64())])
def test_rows_of_pages(tmp_path, codec, version, kind):
    rows = SHORT + LONG
    values = rows if kind == pa.int64() else [[row, [1]] for row in rows]
    table = pa.table({"x": pa.array(values, pa.list_(kind))})
    pq.write_table(table, tmp_path / "a.parquet", compression=codec, data_page_version=version, data_page_size=1 << 16)
    file, metadata = File(tmp_path / "a.parquet"), pq.read_metadata(tmp_path / "a.parquet")
    found = lengths_of(file, metadata, 0, 0, 0)
    counts = np.array([max(1, len(row)) + (kind != pa.int64()) for row in rows])
    assert (np.diff(found.ends) >= 0).all()
    assert found.ends[-1] == len(rows)
    begins = np.append(0, found.ends[:-1])
    longest = [counts[begin:end].max(initial=0) for begin, end in zip(begins, found.ends, strict=True)]
    assert found.longest.tolist() == [8 * int(one) for one in longest]


def test_damaged_levels_count_as_one_row(tmp_path):
    pq.write_table(pa.table({"x": SHORT + LONG}), tmp_path / "a.parquet", compression="none", data_page_version="2.0")
    data, metadata = bytearray((tmp_path / "a.parquet").read_bytes()), pq.read_metadata(tmp_path / "a.parquet")
    start = metadata.row_group(0).column(0).data_page_offset
    data[start + 20 : start + 90] = bytes(70)
    (tmp_path / "a.parquet").write_bytes(data)
    found = lengths_of(File(tmp_path / "a.parquet"), metadata, 0, 0, 0)
    assert found.longest.max() >= metadata.row_group(0).column(0).num_values
