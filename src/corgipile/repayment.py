"""Number of epochs after which a one-time shuffle pays off, for `plan`, `inspect` and `compare`."""

import math

__all__ = ["repaid_after", "repays"]


def repaid_after(setup: float, shuffled: float, other: float) -> int | None:
    """Return the number of epochs after which a one-time shuffle pays off; None: never.

    Args:
        setup: Seconds to write the shuffled table.
        shuffled: Seconds of an epoch over the shuffled table.
        other: Seconds of an epoch over the original table, in another order.

    Example:
        >>> repaid_after(12.0, 2.0, 10.0), repaid_after(12.0, 2.0, 2.0)
        (2, None)
    """
    return max(1, math.ceil(setup / (other - shuffled))) if other > shuffled else None


def repays(setup: float, shuffled: float, other: float) -> str:
    """Describe after how many epochs a one-time shuffle pays off.

    Example:
        >>> repays(12.0, 2.0, 10.0), repays(0.1, 2.0, 10.0)
        ('which pays off after 2 epochs', 'which pays off after 1 epoch')
    """
    epochs = repaid_after(setup, shuffled, other)
    if epochs is None:
        return "which never pays off: its epochs are no faster"
    return f"which pays off after {epochs:,} epoch{'s' * (epochs > 1)}"
