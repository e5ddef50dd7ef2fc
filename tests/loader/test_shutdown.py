"""Iterations that are running when the program ends."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("source", ["table", "'rows.arrow'"])
def test_an_iteration_that_is_not_over_ends_with_the_program(tmp_path, source):
    """A loop over steps leaves an open iterator at exit; with PyTorch it outlives the modules it uses."""
    pytest.importorskip("torch")
    program = f"""
import torch, pyarrow as pa, corgipile as cp
table = pa.table({{"row": range(6000)}})
with pa.ipc.new_file("rows.arrow", table.schema) as writer:
    writer.write_table(table)
loader = cp.Loader({source}, batch_size=50)
batches = iter(loader)
print(len(next(batches)["row"]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("50\n", "")
