"""Without PyTorch, or with one that cannot be loaded, the error says what is needed."""

import subprocess
import sys

import pytest

BLOCKS = {
    "absent": "sys.modules['torch'] = None",
    "hidden": "sys.meta_path.insert(0, Hidden())",
    "broken": "sys.path.insert(0, sys.argv[1])",
}
SCRIPT = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

{block}
import corgipile
from corgipile.errors import MissingExtra

for action in (lambda: __import__("corgipile.torch"), lambda: corgipile.Loader(table(), format="torch")):
    def table():
        import pyarrow
        return pyarrow.table({{"x": [1]}})
    try:
        action()
    except MissingExtra as error:
        print(error)
"""


@pytest.mark.parametrize("how", BLOCKS)
def test_pytorch_that_is_missing_is_named(how, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file')")
    script = SCRIPT.format(block=BLOCKS[how])
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.count("needs PyTorch") == 2, done.stdout
    assert "pip install 'corgipile[torch]'" in done.stdout
