"""Linear models trained by SGD on any table, in any order, without copying its rows."""

from corgipile.linear.model import Model, load
from corgipile.linear.row_gradients import gradients
from corgipile.linear.train import train

__all__ = ["Model", "gradients", "load", "train"]
