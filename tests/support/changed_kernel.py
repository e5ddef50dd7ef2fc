"""Kernel orders compiled from changed sources, to plant faults in C."""

import ctypes
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corgipile import _kernel
from corgipile.orders import CorgiPile, Reservoir, Riffle, SlidingWindow, Step

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"no_shuffle": 0, "block_only": 1, "corgipile": 2, "riffle": 3}
NUMBERS = ctypes.c_void_p


def compiler():
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder, *changes):
    """Compile the kernel's orders after replacing text: (file of kernel/plan, old text, new text)."""
    shutil.copytree(ROOT / "kernel" / "plan", folder / "plan")
    shutil.copy(ROOT / "kernel" / "check.h", folder)
    for name, old, new in changes:
        path = folder / "plan" / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name} must have {old!r} once, got {text.count(old)}"
        path.write_text(text.replace(old, new))
    library = folder / "orders.so"
    source = Path(__file__).with_name("order_shim.c")
    command = [compiler(), "-O0", "-shared", "-fPIC", "-w", f"-I{folder}", "-o", str(library), str(source), "-lm"]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.shim_plan.restype = loaded.shim_stream.restype = ctypes.c_int64
    return loaded


class Whole:
    """Loads all rows in one step and visits them in a given order."""

    def slots(self, blocks):
        return max(1, blocks.rows)

    def steps(self, blocks, key, start=0):
        loaded, rows = self.visited(blocks, key)
        if start == 0:
            yield Step(np.stack([loaded, loaded + 1], axis=1), loaded.astype(np.int32), rows.astype(np.int32))


class Planned(Whole):
    """A kernel plan from a changed library."""

    def visited(self, blocks, key):
        loaded, out = np.empty((2, blocks.rows), np.int64)
        order = self.block_order(blocks, key)
        buffer, group, whole = self.shape()
        done = self.library.shim_plan(
            ctypes.c_int32(KINDS[self.kind]), ctypes.c_int64(blocks.rows), ctypes.c_int64(blocks.even),
            ctypes.c_uint64(key.hash()), NUMBERS(None if order is None else order.ctypes.data), ctypes.c_int64(buffer),
            ctypes.c_int64(group), ctypes.c_int32(whole), NUMBERS(loaded.ctypes.data), NUMBERS(out.ctypes.data),
        )  # fmt: skip
        assert done == blocks.rows
        return loaded, out


@dataclass(frozen=True, kw_only=True)
class ChangedCorgiPile(Planned, CorgiPile):
    library: Any

    def steps(self, blocks, key, start=0):
        for step in super().steps(blocks, key, start):
            for at in range(0, blocks.rows, self.buffer):
                rows = slice(at, at + self.buffer)
                yield Step(step.extents[rows], step.into[rows], step.visit[rows])


@dataclass(frozen=True, kw_only=True)
class ChangedRiffle(Planned, Riffle):
    library: Any

    def block_order(self, blocks, key):
        if self.balance is None or blocks.sketch is None:
            return None
        sketch, order = np.ascontiguousarray(blocks.sketch), np.empty(blocks.count, np.int64)
        hashed, out = ctypes.c_uint64(key.hash(_kernel.KEY_BALANCE)), NUMBERS(order.ctypes.data)
        count, values = ctypes.c_int64(blocks.count), NUMBERS(sketch.ctypes.data)
        if sketch.ndim == 2:
            self.library.shim_balance_vectors(values, count, ctypes.c_int32(sketch.shape[1]), hashed, out)
        else:
            self.library.shim_balance(values, count, hashed, out)
        return order


class Streamed(Whole):
    """A kernel stream from a changed library."""

    def visited(self, blocks, key):
        out = np.empty(2 * blocks.rows, np.int64)
        done = self.library.shim_stream(
            ctypes.c_int32(self.reservoir), ctypes.c_int64(blocks.rows), ctypes.c_int64(self.window),
            ctypes.c_int64(self.block_rows), ctypes.c_uint64(key.hash(_kernel.KEY_STREAM)), NUMBERS(out.ctypes.data),
        )  # fmt: skip
        return np.arange(blocks.rows), out[:done]


@dataclass(frozen=True, kw_only=True)
class ChangedWindow(Streamed, SlidingWindow):
    library: Any


@dataclass(frozen=True, kw_only=True)
class ChangedReservoir(Streamed, Reservoir):
    library: Any
