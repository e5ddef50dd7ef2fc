# Binds the C kernel; see kernel/*.h.

from typing import Any, TypeAlias

import numpy.typing as npt

_Array: TypeAlias = npt.NDArray[Any]

# bind_text.c
def svmlight_parse(
    text: bytes | memoryview,
    final: int,
    base: int,
    starts: _Array | None,
    labels: _Array,
    ends: _Array | None,
    indices: _Array | None,
    values: _Array | None,
    /,
) -> tuple[int, int, int, int, int, int, int, int, int, int]: ...
