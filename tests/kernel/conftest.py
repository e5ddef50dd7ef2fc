"""Runs a C program over cases under the address and undefined-behaviour sanitizers."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

KERNEL = Path(__file__).parents[2] / "kernel"
FLAGS = [
    "-std=c11",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-DCP_CHECKS",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]


@pytest.fixture
def arm64(tmp_path):
    """Compile a program of this folder for arm64 and run it in an emulator; return its output lines."""

    def run(source, *flags):
        compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
        if not (compiler and emulator):
            pytest.skip("no compiler and emulator for arm64 are installed")
        build = [compiler, "-O1", "-DCP_NO_CLONES", "-static", f"-I{KERNEL}", *flags, Path(__file__).with_name(source)]
        subprocess.run([*build, "-lpthread", "-lm", "-o", tmp_path / "arm64"], check=True, capture_output=True)
        done = subprocess.run([emulator, tmp_path / "arm64"], check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    return run


@pytest.fixture
def sanitized(tmp_path):
    """Compile a program, run it on a file of length-prefixed cases, and return the numbers that it prints."""

    def run(program, cases, *extra):
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("no C compiler")
        source, binary, file = tmp_path / "main.c", tmp_path / "main", tmp_path / "cases"
        source.write_text("int main(void) { return 0; }")
        if subprocess.run([compiler, *FLAGS, source, "-o", binary], capture_output=True, check=False).returncode:
            pytest.skip(f"{compiler} has no sanitizers")
        source.write_text(program)
        subprocess.run([compiler, *FLAGS, f"-I{KERNEL}", source, "-o", binary, "-lm", "-lpthread", *extra], check=True)
        file.write_bytes(b"".join(struct.pack("<I", len(case)) + case for case in cases))
        done = subprocess.run([binary, file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        return [int(number) for number in done.stdout.split()]

    return run
