"""Newton's method: the same bits from every compiler, flag and vector width, and no step outside memory."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMON = ["-std=c11", "-Wall", "-Wextra", "-Wswitch-enum", "-Werror", "-ffp-contract=off"]
SANITIZE = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


def lines_of(compiler, flags, folder):
    binary = folder / "newton"
    build = [compiler, *flags, *COMMON, f"-I{HERE.parents[1] / 'kernel'}", HERE / "newton.c", "-lm", "-o", binary]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    if built.returncode and "sanitize" in " ".join(flags):
        pytest.skip(f"{compiler} has no sanitizers: {built.stderr[:200]}")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split("\n")[:-1]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    if not COMPILERS:
        pytest.skip("no C compiler is installed")
    found = lines_of(COMPILERS[0], ["-O0", "-DCP_NO_CLONES"], tmp_path_factory.mktemp("plain"))
    assert found[-1] == "solve 1 1 1"
    assert {line.split()[0] for line in found[:-1]} == {"700", "698", "697"}  # two or three rows are skipped
    return found


@pytest.mark.parametrize(
    "flags",
    [["-O2"], ["-O1", "-mavx2"], ["-O3", "-march=native"], SANITIZE],
    ids=["widths", "avx2", "native", "sanitized"],
)
def test_bits_are_the_same(expected, flags, tmp_path):
    for compiler in COMPILERS:
        assert lines_of(compiler, flags, tmp_path) == expected
