"""The obstore library, usable after a fork."""

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from typing import Any

from corgipile.errors import MissingExtra

__all__ = ["obstore"]

_NATIVE = "obstore._obstore"
_stale = False  # whether the native threads stayed in the parent process
_lock = threading.Lock()
_left: list[Any] = []  # modules of the parent process, which must not be freed


def obstore() -> Any:
    """Return the module; in a forked process, one that works there.

    The native part runs threads, which a fork does not copy, and waits for them forever. A worker of a
    ``DataLoader`` is a fork of a process that has read the table's metadata. There the native part is loaded a
    second time: the system treats a copy as another library with its own threads.

    Raises:
        MissingExtra: It is not installed.
    """
    global _stale  # noqa: PLW0603 - one per process
    with _lock:
        if _stale:
            _load_again()
            _stale = False
        try:
            import obstore.store  # noqa: PLC0415 - optional
        except ImportError as error:
            raise MissingExtra(
                f"object stores and web servers need obstore, which is not installed ({error}): "
                "pip install 'corgipile[stores]'"
            ) from None
        return obstore


def _load_again() -> None:
    names = [name for name in sys.modules if name == "obstore" or name.startswith("obstore.")]
    native = sys.modules.get(_NATIVE)
    _left.extend(sys.modules.pop(name) for name in names)
    if native is None or native.__file__ is None:
        return
    with tempfile.TemporaryDirectory(prefix="corgipile-") as folder:
        copy = Path(folder) / Path(native.__file__).name
        shutil.copyfile(native.__file__, copy)
        finder = _Finder(str(copy))
        sys.meta_path.insert(0, finder)
        try:
            importlib.import_module("obstore")
            importlib.import_module("obstore.store")
        finally:
            sys.meta_path.remove(finder)


class _Finder:
    """Finds the native part at another path.

    Args:
        path: The path.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # by position
        """Return the spec of the native part, None for other modules."""
        if name != _NATIVE:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=ExtensionFileLoader(name, self._path))


def _forked() -> None:
    global _stale, _lock  # noqa: PLW0603 - as above
    _lock = threading.Lock()
    _stale = _stale or _NATIVE in sys.modules


os.register_at_fork(after_in_child=_forked)
