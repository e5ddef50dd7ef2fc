"""The public names are those listed, and importing them stays light."""

import subprocess
import sys

import pytest

import corgipile as cp


def test_names_are_sorted_and_there():
    assert cp.__all__ == sorted(cp.__all__)
    for name in cp.__all__:
        assert getattr(cp, name) is not None
    assert callable(cp.compare)
    assert callable(cp.convert)
    assert callable(cp.reshuffle)
    with pytest.raises(AttributeError, match="no attribute 'shuffle'"):
        cp.shuffle  # noqa: B018


def test_import_brings_numpy_and_pyarrow_only():
    script = "import sys, corgipile; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "sklearn", "pandas", "scipy", "typer", "rich", "safetensors", "duckdb"} & set(loaded)


def test_dir_has_public_names_alone():
    assert not {"Any", "import_module", "TYPE_CHECKING"} & set(dir(cp))
    assert {*cp.__all__, "__version__"} <= set(dir(cp))
