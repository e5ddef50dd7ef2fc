"""Linear models by SGD over any table, in any order, in place."""

from corgipile.linear.model import Model, load
from corgipile.linear.row_gradients import gradients
from corgipile.linear.train import train

__all__ = ["Model", "gradients", "load", "train"]
