"""Builds the wheel of every platform on this machine, checks each, and runs those that it can: `make wheels`.

Zig, a C compiler in a wheel of PyPI, compiles for all of them. The kernel needs Python's headers only, and the stable
ABI is the same on every 64-bit platform, so the headers of the running interpreter serve.
"""

import argparse
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Platform tag of the wheel: target of the compiler.
TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_12_0_x86_64": "x86_64-macos.12.0",
    "macosx_12_0_arm64": "aarch64-macos.12.0",
}
MAX_BYTES = 2_500_000
ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
MACH_MACHINES = {0x01000007: "x86_64", 0x0100000C: "arm64"}
NEWER_GLIBC = ("2_27", "2_28", "2_34")  # which the wheels of numpy and pyarrow need
FIRST_BATCH = """
import platform, numpy, pyarrow, pyarrow.parquet, corgipile
table = pyarrow.table({"x": numpy.arange(1000.0), "label": numpy.arange(1000) // 500})
pyarrow.parquet.write_table(table, "mine.parquet")
batches = list(corgipile.Loader("mine.parquet", batch_size=100, memory="1MB"))
assert sorted(numpy.concatenate([batch["x"] for batch in batches])) == list(range(1000))
assert corgipile.train("mine.parquet", label="label").judge("mine.parquet").figures["accuracy"] > 0.9
flags = open("/proc/cpuinfo").read() if platform.machine() == "x86_64" else ""
assert corgipile._kernel.sgd_isa() == (2 if "avx512bw" in flags else 1 if "avx2" in flags else 0)
"""


def build(tag: str, folder: Path) -> Path:
    """Compile for one platform and pack the wheel."""
    target = TARGETS[tag]
    compiler = f"{sys.executable} -m ziglang cc -target {target}"
    shared = " -shared -undefined dynamic_lookup" if "macos" in target else " -shared"
    with tempfile.TemporaryDirectory() as scratch:
        flags = f"-s {cpu_model(compiler, scratch)}" if "x86_64" in target else "-s"
        environment = os.environ | {"CC": compiler, "LDSHARED": compiler + shared, "CORGIPILE_LDFLAGS": flags}
        command = [sys.executable, "-W", "ignore", "setup.py", "--quiet", "build", f"--build-base={scratch}/build"]
        command += ["bdist_wheel", f"--plat-name={tag}", f"--bdist-dir={scratch}/packed", f"--dist-dir={scratch}/dist"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        (wheel,) = Path(scratch, "dist").iterdir()
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, folder))


def cpu_model(compiler: str, folder: str) -> str:
    """Compile what tells apart x86-64 CPUs, which Zig's runtime library lacks; return the object file."""
    path = f"{folder}/cpu_model.o"
    command = [*shlex.split(compiler), "-O2", "-fPIC", "-c", str(ROOT / "tools" / "cpu_model.c"), "-o", path]
    subprocess.run(command, check=True)
    return path


def machine(library: bytes) -> str:
    """Return the processor that an ELF or Mach-O library is for, read from its header."""
    if library[:4] == b"\x7fELF":
        return ELF_MACHINES[struct.unpack_from("<H", library, 18)[0]]
    magic, cpu = struct.unpack_from("<II", library)
    return MACH_MACHINES[cpu] if magic == 0xFEEDFACF else f"unknown format {magic:#x}"


def check(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel: its tag, size, contents or processor."""
    tag = wheel.stem.split("-", 2)[2]
    with zipfile.ZipFile(wheel) as packed:
        libraries = [name for name in packed.namelist() if name.endswith((".so", ".dylib", ".pyd"))]
        (facts,) = (name for name in packed.namelist() if name.endswith(".dist-info/WHEEL"))
        tags = [line[5:] for line in packed.read(facts).decode().splitlines() if line.startswith("Tag: ")]
        processor = machine(packed.read(libraries[0])) if libraries else "no processor"
    rules = {
        f"its name has the tag {tag}, its contents have {tags}": tags == [tag],
        f"{tag} is not of the stable ABI of Python 3.11": tag.startswith("cp311-abi3-"),
        f"it takes {wheel.stat().st_size:,} bytes of {MAX_BYTES:,}": wheel.stat().st_size <= MAX_BYTES,
        f"its libraries are {libraries}": libraries == ["corgipile/_kernel.abi3.so"],
        f"its library is for {processor}": tag.endswith(processor),
    }
    return [text for text, holds in rules.items() if not holds]


def audit(wheel: Path) -> Iterator[str]:
    """Yield what is wrong with the symbols of a wheel: outside Python's stable ABI or the oldest C library."""
    tag = wheel.stem.split("-")[-1]
    yield from _findings("abi3audit", "--strict", "--assume-minimum-abi3", "3.11", str(wheel))
    if "manylinux" in tag:
        yield from _findings("auditwheel", "show", str(wheel), wanted=f'"{tag}"')
    if "linux" in tag:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as packed:
            names = undefined(Path(packed.extract("corgipile/_kernel.abi3.so", folder)), versioned="musl" not in tag)
        known = musl() if "musl" in tag else set()
        yield from (f"symbol {name} is not in the C library" for name in names - known)


def _findings(tool: str, *options: str, wanted: str = "") -> Iterator[str]:
    done = subprocess.run([sys.executable, "-m", tool, *options], capture_output=True, text=True, check=False)
    if done.returncode or wanted not in done.stdout:
        yield f"{tool}: {done.stdout}{done.stderr}"


def undefined(library: Path, *, versioned: bool) -> set[str]:
    """Return the symbols that neither Python nor, by their version, a C library with versions provides."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - comes with auditwheel

    names = set()
    with library.open("rb") as file:
        elf = ELFFile(file)
        versions = elf.get_section_by_name(".gnu.version")
        for at, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            plain = not versioned or versions.get_symbol(at)["ndx"] in {"VER_NDX_LOCAL", "VER_NDX_GLOBAL"}
            if plain and symbol["st_shndx"] == "SHN_UNDEF" and not symbol.name.startswith(("Py", "_Py")):
                names.add(symbol.name)
    return names - {""}


def musl() -> set[str]:
    """Return the symbols of musl, which has no versions, from the compiler's copy."""
    import ziglang  # noqa: PLC0415 - not needed to check files

    text = Path(ziglang.__file__).parent.joinpath("lib/libc/musl/libc.S").read_text()
    return {line.split()[1] for line in text.splitlines() if line.startswith((".globl", ".weak", "WEAKTIME64"))}


def run(wheel: Path, python: str) -> str:
    """Install a wheel for an interpreter and train with it; return the interpreter's version.

    Args:
        wheel: The wheel.
        python: A command, such as ``python3.13`` or ``qemu-aarch64 -L ROOT ROOT/usr/bin/python3.11``.
    """
    words, tag = shlex.split(python), wheel.stem.split("-")[-1]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = subprocess.run([*words, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    platforms = [tag, *(tag.replace("2_17", newer) for newer in NEWER_GLIBC if "2_17" in tag)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", f"--target={folder}"]
        command += [f"--platform={one}" for one in platforms]
        subprocess.run([*command, f"--python-version={version}", str(wheel)], check=True)
        environment = os.environ | {"PYTHONPATH": folder}
        subprocess.run([*words, "-c", FIRST_BATCH], cwd=folder, env=environment, check=True)
    return version


def main() -> None:
    """Build, check and run the wheels of the named platforms, else of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--run", action="append", default=[], metavar="PLATFORM=PYTHON", help="a command to run it with"
    )
    options = parser.parse_args()
    native = f"manylinux_2_17_{os.uname().machine}={sys.executable}"
    runs = [one.partition("=") for one in (native, *options.run)]
    for tag in options.only:
        wheel = build(tag, options.folder)
        if problems := [*check(wheel), *audit(wheel)]:
            sys.exit("\n".join([wheel.name, *problems]))
        ran = ", ".join(run(wheel, python) for platform, _, python in runs if platform == tag)
        state = f"ran on Python {ran}" if ran else "built, not run"
        print(f"{wheel.name}  {wheel.stat().st_size / 1e6:.2f} MB  checked; {state}", flush=True)


if __name__ == "__main__":
    main()
