"""The same bits from every compiler, flag and vector width, and no step outside memory or the language."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMON = [
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Wswitch-enum",
    "-Werror",
    "-ffp-contract=off",
    f"-I{HERE.parents[1] / 'kernel'}",
]
NATIVE = ["-O3", "-march=native", "-DCP_NO_CLONES"]
SANITIZE = ["-O0", "-DCP_NO_CLONES", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
LAST = ["label 2 weight 8 slot 1 slot 1 indices 6 5 7", "company 0"]  # refusals; models that company has changed


def compilers():
    return [name for name in ("gcc", "clang") if shutil.which(name)] or [name for name in ("cc",) if shutil.which(name)]


def output(compiler, flags, folder):
    binary = folder / "sgd"
    build = [compiler, *flags, *COMMON, str(HERE / "sgd.c"), "-lm", "-o", str(binary)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    if built.returncode:
        return None, built.stderr
    ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split("\n")[:-1], ""


def builds():
    """Return a compiler with flags; test_sgd.py compares the first compiler's vector widths in the extension.

    Others are compared with the first one's code without optimisation; the sanitizers check the last one's.
    """
    return [(name, NATIVE) for name in compilers()[-1:]]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    if not compilers():
        pytest.skip("no C compiler is installed")
    lines, errors = output(compilers()[0], ["-O0", "-DCP_NO_CLONES"], tmp_path_factory.mktemp("plain"))
    assert lines is not None, errors
    assert lines[1:] == LAST
    return lines[0]


@pytest.mark.parametrize(
    ("compiler", "flags"), builds(), ids=lambda part: part if isinstance(part, str) else " ".join(part)
)
def test_every_build_gets_the_same_bits(compiler, flags, expected, tmp_path):
    lines, errors = output(compiler, flags, tmp_path)
    if lines is None and "march" in errors:
        pytest.skip(f"{compiler} does not know {flags}")
    assert lines is not None, errors
    assert set(lines[:-2]) == {expected}
    assert lines[-2:] == LAST


def test_arm64_gets_the_same_bits(arm64, expected):
    assert arm64("sgd.c", *COMMON) == [expected, *LAST]


def test_sanitizers_find_nothing(expected, tmp_path):
    compiler = compilers()[-1]
    lines, errors = output(compiler, SANITIZE, tmp_path)
    if lines is None and ("asan" in errors or "ubsan" in errors or "sanitize" in errors):
        pytest.skip(f"{compiler} has no sanitizers here")
    assert lines is not None, errors
    assert set(lines[:-2]) == {expected}
    assert lines[-2:] == LAST
