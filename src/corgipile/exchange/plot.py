"""Plot of a simulated exchange."""

from pathlib import Path

from corgipile.errors import BadArgument, MissingExtra
from corgipile.exchange.simulate import Simulation
from corgipile.outputs import Kind, PathLike, replacing

__all__ = ["draw"]

MARK = "corgipile simulate"


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return MARK.encode() in file.read(4096)


PICTURE = Kind("picture", _is_ours)


def draw(found: Simulation, path: PathLike, *, overwrite: bool = False) -> None:
    """Plot the share of rows at home and deff by epoch, expected and counted, to a PNG file."""
    if Path(path).suffix.lower() != ".png":
        raise BadArgument(f"path must end in .png, got {path}")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtra("a picture needs matplotlib: pip install 'corgipile[plot]'") from None
    plan, epochs = found.plan, [mixing.epoch for mixing in found.mixing]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    home, deff = figure.subplots(1, 2)
    home.plot(epochs, [mixing.home for mixing in found.mixing], label="expected")
    home.plot(epochs, [mixing.paper for mixing in found.mixing], ":", label="1/M + (1 - 1/M)(1 - Q)^e")
    home.plot(epochs, [mixing.home_counted for mixing in found.mixing], "o", label="counted")
    home.axhline(1 / plan.world, color="grey", linewidth=0.8)
    home.set(ylabel="share of rows at home", ylim=(0, 1.05))
    deff.plot(epochs, [mixing.local for mixing in found.mixing], label="a rank's batch")
    deff.plot(epochs, [mixing.local_counted for mixing in found.mixing], "o", label="counted")
    deff.plot(epochs, [mixing.everywhere for mixing in found.mixing], label="all ranks' batch")
    deff.axhline(1, color="grey", linewidth=0.8)
    deff.set(ylabel="deff (1: a full shuffle)", yscale="log")
    for axes in (home, deff):
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False, fontsize=8)
    figure.suptitle(f"{plan.world:,} ranks, fraction {plan.fraction:g}, {plan.least:,} blocks per rank", fontsize=10)
    with replacing(path, PICTURE, overwrite=overwrite) as temporary:
        figure.savefig(temporary, format="png", dpi=120, metadata={"Software": MARK})
