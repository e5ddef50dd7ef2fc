"""``corgipile doctor``."""

import re
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from typing import Any

from corgipile import _kernel
from corgipile.cli.console import command as guarded
from corgipile.cli.console import show_facts, show_json
from corgipile.cli.flags import Json
from corgipile.lazy import lazy

environment, index_cache = lazy("corgipile.environment"), lazy("corgipile.tables.io.index_cache")
server, spill, torch = lazy("corgipile.postgres.server"), lazy("corgipile.tables.io.spill"), lazy("torch")
LEVELS = ("compiler's default", "AVX2", "AVX-512")


@guarded
def command(*, json: Json = False) -> None:
    """Show versions, extras, instruction set, devices and folders: include the output in bug reports."""
    facts: dict[str, Any] = {**environment.versions(), "kernel": f"{_kernel.__file__}, {LEVELS[_kernel.sgd_isa()]}"}
    facts |= {f"extra {name}": text for name, text in _extras().items()}
    facts["device"] = _device() if find_spec("torch") else "none: PyTorch is not installed"
    facts["cache (CORGIPILE_CACHE)"] = index_cache.cache_folder("indexes").parent
    facts["spill files (CORGIPILE_SPILL)"] = spill.spill_folder(None)
    facts["PostgreSQL server"] = server.default_home()
    shown = {name: str(value) for name, value in facts.items()}
    show_json(shown) if json else show_facts("corgipile", list(shown.items()))


def _device() -> str:
    return ", ".join(map(torch.cuda.get_device_name, range(torch.cuda.device_count()))) or "CPU only"


def _extras() -> dict[str, str]:
    """Return the packages of each extra with their versions, or how to install them."""
    found: dict[str, str] = {}
    for line in distribution("corgipile").requires or ():
        extra, name = re.search(r"extra == ['\"](\w+)", line), re.match(r"[\w.-]+", line)
        if extra and name and name[0] != "corgipile" and extra[1] != "all":
            try:
                text = f"{name[0]} {version(name[0])}"
            except PackageNotFoundError:
                text = f"{name[0]} missing: pip install 'corgipile[{extra[1]}]'"
            found[extra[1]] = ", ".join(filter(None, (found.get(extra[1]), text)))
    return found
