"""Builds orders, reader and runs under sanitizers, and for other CPUs: no fault, and the same plans everywhere."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNEL = HERE.parents[1] / "kernel"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
PLANS = "311277de9f0e5d8d"  # of all plans as released: a seed keeps its meaning within an order's version
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(tmp_path, *flags, source="plans.c"):
    if COMPILER is None:
        pytest.skip("no C compiler here")
    program = tmp_path / "plans"
    command = [COMPILER, "-std=gnu11", "-g", *WARNINGS, *flags, f"-I{KERNEL}", str(HERE / source)]
    done = subprocess.run(
        [*command, "-o", str(program), "-lpthread", "-lm"], capture_output=True, text=True, check=False
    )
    return program if done.returncode == 0 else done.stderr  # which no shell can run, so that the test fails


def run(program, *arguments):
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def flags_of(sanitizer, tmp_path):
    """Return the flags of a sanitizer if this compiler has it."""
    flags = ["-O1", "-DCP_CHECKS", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    (tmp_path / "empty.c").write_text("int main(void) { return 0; }")
    if isinstance(build(tmp_path, *flags, source=tmp_path / "empty.c"), str):
        pytest.skip(f"this compiler has no {sanitizer} sanitizer")
    return flags


@pytest.fixture(params=["address,undefined", "thread"])
def sanitizer(request, tmp_path):
    return flags_of(request.param, tmp_path)


def test_no_fault_under_sanitizers(tmp_path, sanitizer):
    assert run(build(tmp_path, *sanitizer)) == PLANS


def test_runs_under_sanitizers(tmp_path, sanitizer):
    run(build(tmp_path, *sanitizer, source="prefetch.c"))


def test_rows_gathered_aside_under_sanitizers(tmp_path, sanitizer):
    alone = ["without a fork"] if "-fsanitize=thread" in sanitizer else []  # which that sanitizer does not follow
    run(build(tmp_path, *sanitizer, source="async_gather.c"), *alone)


@pytest.mark.parametrize("source", ["reading.c", "ranges.c"])
def test_bytes_arrive_whatever_a_device_answers(tmp_path, source):
    run(build(tmp_path, *flags_of("address,undefined", tmp_path), source=source))


def test_plans_do_not_depend_on_the_build(tmp_path):
    for flags in (["-O0"], ["-O3", "-march=native"], ["-O2", "-ffast-math"]):
        assert run(build(tmp_path, *flags), "no reading") == PLANS


def test_arm64_makes_the_same_plans(arm64):
    assert arm64("plans.c", "-std=gnu11") == [PLANS]
