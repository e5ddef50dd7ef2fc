"""Arrow columns as arrays without importing pandas, which costs a second and 50 MB per process."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from corgipile.tables.spans import flat

NO_PANDAS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] != "pandas", "pandas was asked for"

sys.meta_path.insert(0, Refuse())
import corgipile as cp
for path in sys.argv[1:]:
    for order in ("balanced", "full"):
        for form in ("numpy", "arrow"):
            batches = cp.Loader(cp.open(path), batch_size=16, order=order, format=form)
            rows = sum(len(batch["label"]) for batch in batches)
            assert rows == 60, rows
    assert cp.reshuffle(path, path + ".shuffled.arrow", "corgi2", memory="100KB") == 60
"""


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float32()])
@pytest.mark.parametrize(("start", "stop"), [(0, 9), (3, 8), (4, 4)])
def test_numbers_of_a_slice(kind, start, stop):
    values = np.array([1, 0, 0, 1, 1, 1, 0, 1, 0]).astype(kind.to_pandas_dtype())
    got = flat(pa.array(values)[start:stop])
    assert got.dtype == values.dtype
    assert got.tolist() == values[start:stop].tolist()


def test_reading_and_reshuffling_load_no_pandas(tmp_path):
    columns = {"x": np.arange(60.0), "label": np.arange(60) // 30}
    rows = pa.table(columns)
    with pa.ipc.new_file(
        str(tmp_path / "a.arrow"), rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as f:
        f.write_table(rows, 20)
    pa.parquet.write_table(rows, tmp_path / "a.parquet", row_group_size=20)
    text = "".join(f"{label} {1 + i % 7}:0.5\n" for i, label in enumerate(columns["label"]))
    (tmp_path / "a.svm").write_text(text)
    files = [str(tmp_path / name) for name in ("a.arrow", "a.parquet", "a.svm")]
    done = subprocess.run([sys.executable, "-c", NO_PANDAS, *files], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
