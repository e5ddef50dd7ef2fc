"""What `make wheels` checks in a wheel, and what it builds where the cross-compiler is installed."""

import importlib.util
import struct
import subprocess
import sys
import zipfile

import pytest
from documents import ROOT

spec = importlib.util.spec_from_file_location("wheels", ROOT / "tools" / "wheels.py")
wheels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wheels)

ARM64_ELF = b"\x7fELF" + bytes(14) + struct.pack("<H", 183)
ARM64_MACH = struct.pack("<II", 0xFEEDFACF, 0x0100000C)


def wheel(folder, name, library, *, tag=None, place="corgipile/_kernel.abi3.so"):
    path = folder / f"corgipile-0.1.0-{name}.whl"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(place, library)
        packed.writestr("corgipile-0.1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag or name}\n")
    return path


@pytest.mark.parametrize(
    ("name", "library"),
    [("cp311-abi3-manylinux_2_17_aarch64", ARM64_ELF), ("cp311-abi3-macosx_12_0_arm64", ARM64_MACH)],
)
def test_a_wheel_is_what_its_name_says(tmp_path, monkeypatch, name, library):
    assert wheels.check(wheel(tmp_path, name, library)) == []
    assert "contents have ['cp311-abi3-any']" in wheels.check(wheel(tmp_path, name, library, tag="cp311-abi3-any"))[0]
    other = name.replace("aarch64", "x86_64").replace("arm64", "x86_64")
    assert wheels.check(wheel(tmp_path, other, library)) == [f"its library is for {name.rpartition('_')[2]}"]
    assert "stable ABI" in wheels.check(wheel(tmp_path, name.replace("abi3", "cp311"), library))[0]
    where = "corgipile/_kernel.cpython-311.so"
    assert wheels.check(wheel(tmp_path, name, library, place=where)) == [f"its libraries are ['{where}']"]
    monkeypatch.setattr(wheels, "MAX_BYTES", 100)
    assert "bytes of 100" in wheels.check(wheel(tmp_path, name, library))[0]


def test_symbols_of_no_c_library_are_found(tmp_path):
    pytest.importorskip("ziglang")
    pytest.importorskip("elftools")
    source, library = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text(
        "int newer(void); int PyAny(void); int getpid(void);\nint f(void) { return newer() + PyAny() + getpid(); }"
    )
    for target, musl in (("aarch64-linux-gnu.2.17", False), ("x86_64-linux-musl", True)):
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-shared", source, "-o", library]
        subprocess.run(command, check=True)
        missing = wheels.undefined(library, versioned=not musl)
        assert missing - (wheels.musl() if musl else set()) == {"newer"}


def test_windows_is_refused_at_once(tmp_path):
    code = "import sys, setuptools.command.build_ext, setuptools.command.build_py; sys.platform = 'win32'; "
    code += "exec(compile(open('setup.py').read(), 'setup.py', 'exec'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Linux and macOS only" in done.stderr
    assert "WSL" in done.stderr
