"""Builds the C kernel as one abi3 extension and packs the PostgreSQL extension; the rest is in pyproject.toml."""

import os
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
PACKED = ["kernel/**/*.h", "postgres/Makefile", "postgres/*.control", "postgres/sql/*.sql", "postgres/src/*.[ch]"]
HEADERS = sorted(str(path.relative_to(HERE)) for part in ("kernel", "src") for path in (HERE / part).rglob("*.h"))


class BuildPy(build_py):
    """Puts the C sources that `corgipile pg` compiles beside the package; a checkout has them where they are."""

    def run(self) -> None:
        """Build the modules, then copy the sources."""
        super().run()
        if self.editable_mode:
            return
        for path in (path for pattern in PACKED for path in sorted(HERE.glob(pattern))):
            target = Path(self.build_lib, "corgipile", "postgres", "sources", path.relative_to(HERE))
            self.mkpath(str(target.parent))
            self.copy_file(str(path), str(target))


class BuildExt(build_ext):
    """Compiles the kernel; for a checkout that is installed as it is not once more what `build_ext --inplace` made."""

    def build_extension(self, ext: Extension) -> None:
        """Compile, or take what is newer than its sources."""
        there, made = Path(self.get_ext_fullpath(ext.name)), HERE / "src" / self.get_ext_filename(ext.name)
        newest = max(Path(path).stat().st_mtime for path in (*ext.sources, *ext.depends, __file__))
        fresh = self.editable_mode and made.exists() and made.stat().st_mtime > newest
        if not fresh or os.environ.get("CORGIPILE_CFLAGS"):
            self.compiler.compile = self._side_by_side(self.compiler.compile)
            super().build_extension(ext)
            return
        self.mkpath(str(there.parent))
        self.copy_file(str(made), str(there))

    @staticmethod
    def _side_by_side(compile_all: Any) -> Any:
        """Return what compiles each file by itself, as many at a time as there are cores: two take most of the time."""

        def compiled(sources: list[str], *given: Any, **named: Any) -> list[str]:
            first = compile_all(sources[:1], *given, **named)  # which makes the folder
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                rest = pool.map(lambda one: compile_all([one], *given, **named), sources[1:])
                return [*first, *(made for some in rest for made in some)]

        return compiled


def long_description() -> str:
    """Return README.md as a package index can show it: without pictures and links to files of the repository."""
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
                "-fno-math-errno",  # roots are taken of vectors, then; the bits are the same
                "-fvisibility=hidden",
                *shlex.split(os.environ.get("CORGIPILE_CFLAGS", "")),
            ],
            extra_link_args=["-lpthread", "-lm", *shlex.split(os.environ.get("CORGIPILE_LDFLAGS", ""))],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
