"""Builds the C kernel as one abi3 extension and packs the PostgreSQL extension; the rest is in pyproject.toml."""

import os
import re
import shlex
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

if sys.platform == "win32":
    sys.exit("corgipile runs on Linux and macOS only. On Windows, install it inside WSL 2: `wsl --install`.")

HERE = Path(__file__).parent
PACKED = ["kernel/**/*.h", "postgres/Makefile", "postgres/*.control", "postgres/sql/*.sql", "postgres/src/*.[ch]"]
HEADERS = sorted(str(path.relative_to(HERE)) for part in ("kernel", "src") for path in (HERE / part).rglob("*.h"))


class BuildPy(build_py):
    """Packs the C sources that `corgipile pg` compiles as one archive; a checkout already has them."""

    def run(self) -> None:
        """Build the modules, then pack the sources."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "corgipile", "postgres", "sources.tar.xz")
        self.mkpath(str(target.parent))
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for path in (path for pattern in PACKED for path in sorted(HERE.glob(pattern))):
                archive.add(path, path.relative_to(HERE), filter=self._anonymous)

    @staticmethod
    def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        """Remove what differs between machines."""
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        member.mode = 0o644
        return member


class BuildExt(build_ext):
    """Compiles the kernel; an editable install reuses an up-to-date result of `build_ext --inplace`."""

    def build_extension(self, ext: Extension) -> None:
        """Compile, or copy a build that is newer than its sources."""
        target, built = Path(self.get_ext_fullpath(ext.name)), HERE / "src" / self.get_ext_filename(ext.name)
        newest = max(Path(path).stat().st_mtime for path in (*ext.sources, *ext.depends, __file__))
        fresh = self.editable_mode and built.exists() and built.stat().st_mtime > newest
        if not fresh or os.environ.get("CORGIPILE_CFLAGS"):
            self.compiler.compile = self._in_parallel(self.compiler.compile)
            super().build_extension(ext)
            return
        self.mkpath(str(target.parent))
        self.copy_file(str(built), str(target))

    @staticmethod
    def _in_parallel(compile_all: Any) -> Any:
        """Return a compiler of one file per core at a time."""

        def compile_each(sources: list[str], *arguments: Any, **keywords: Any) -> list[str]:
            first = compile_all(sources[:1], *arguments, **keywords)  # creates the folder
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                others = pool.map(lambda source: compile_all([source], *arguments, **keywords), sources[1:])
                return [*first, *(path for paths in others for path in paths)]

        return compile_each


def long_description() -> str:
    """Return README.md for a package index: without pictures and links to files of the repository."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n\n", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?://)[^)]*\)", r"\1", text)


setup(
    long_description=long_description(),
    long_description_content_type="text/markdown",
    cmdclass={"build_py": BuildPy, "build_ext": BuildExt},
    ext_modules=[
        Extension(
            "corgipile._kernel",
            sources=sorted(str(path.relative_to(HERE)) for path in (HERE / "src/corgipile/_kernel").glob("*.c")),
            include_dirs=["kernel", "src/corgipile/_kernel"],
            depends=HEADERS,
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            # Contraction to fused multiply-add would make results depend on the CPU.
            extra_compile_args=[
                "-std=c11",
                "-O3",
                "-g0",
                "-ffp-contract=off",
                "-fno-math-errno",  # vectorises square roots, with the same bits
                "-fvisibility=hidden",
                *shlex.split(os.environ.get("CORGIPILE_CFLAGS", "")),
            ],
            extra_link_args=["-lpthread", "-lm", *shlex.split(os.environ.get("CORGIPILE_LDFLAGS", ""))],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
