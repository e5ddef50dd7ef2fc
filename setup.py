"""Builds the C kernel as one abi3 extension; everything else is in pyproject.toml."""

import os
import shlex
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).parent
HEADERS = sorted(str(path.relative_to(HERE)) for part in ("kernel", "src") for path in (HERE / part).rglob("*.h"))

setup(
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
                "-fvisibility=hidden",
                *shlex.split(os.environ.get("CORGIPILE_CFLAGS", "")),
            ],
            extra_link_args=["-lpthread", "-lm", *shlex.split(os.environ.get("CORGIPILE_LDFLAGS", ""))],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
