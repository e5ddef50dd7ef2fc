"""Convergence bounds of CorgiPile and of partial local shuffling, up to the constants that the papers hide."""

from dataclasses import dataclass
from math import ceil, expm1, lgamma, log, sqrt

from corgipile.errors import BadArgument

__all__ = ["CorgiPileBound", "log_reachable_share", "partial_terms", "shuffling_error", "theorem_step"]

MAX_VISITS = 1e30  # visits that `visits_to` searches


@dataclass(frozen=True, kw_only=True)
class CorgiPileBound:
    """Bounds of SGD that visits a buffer of n random blocks per epoch (CorgiPile, Theorems 1 and 2).

    The paper's epoch draws n of N blocks; corgipile's epochs visit all blocks, which only lowers the error.

    Attributes:
        n: Blocks in the buffer.
        b: Rows per block.
        blocks: Blocks in the table, N.
        h_d: Block-wise variance factor, from `corgipile.quality.h_d`.
        variance: Variance of the rows' gradients, σ².

    Example:
        >>> bound = CorgiPileBound(n=51, b=100, blocks=501, h_d=100.0)
        >>> bound.alpha, bound.factor  # rows relative to independent rows, for the same error
        (0.1, 90.0)
    """

    n: int
    b: int
    blocks: int
    h_d: float
    variance: float = 1.0

    def __post_init__(self) -> None:
        if not (1 <= self.n <= self.blocks and self.b >= 1 and 0 <= self.h_d <= self.b and self.variance >= 0):
            raise BadArgument(
                "1 <= n <= blocks, b >= 1, 0 <= h_d <= b and variance >= 0 must hold, "
                f"got n {self.n}, blocks {self.blocks}, b {self.b}, h_d {self.h_d}, variance {self.variance}"
            )

    @property
    def alpha(self) -> float:
        """Return ``(n - 1)/(N - 1)``: 0 for one block in memory, 1 for all."""
        return (self.n - 1) / (self.blocks - 1) if self.blocks > 1 else 1.0

    @property
    def factor(self) -> float:
        """Return ``(1 - alpha) h_D``: rows that CorgiPile visits per independently drawn row, for the same error."""
        return (1 - self.alpha) * self.h_d

    def convex(self, visits: float) -> tuple[float, float, float]:
        """Return the three terms of Theorem 1, for strongly convex losses: distance to the smallest loss.

        Args:
            visits: Visited rows, T.
        """
        rows, alpha = self.blocks * self.b, self.alpha
        beta = alpha**2 + (1 - alpha) ** 2 * (self.b - 1) ** 2
        drift = (self.n / self.blocks * rows / visits) ** 3
        return self.factor * self.variance / visits, beta / visits**2, drift

    def smooth(self, visits: float) -> tuple[float, float, float]:
        """Return the three terms of Theorem 2, for smooth losses: mean squared norm of the gradient.

        With all blocks in memory it is the theorem's form for alpha = 1: ``T^(-2/3)``, 0 and the drift. The same form
        serves for an h_D or a variance of 0, for which the paper has no bound.
        """
        rows, spread = self.blocks * self.b, self.factor * self.variance
        if not spread:
            return visits ** (-2 / 3), 0.0, (self.n / self.blocks * rows) ** 3 / visits
        beta = self.alpha**2 / spread + (1 - self.alpha) ** 2 * (self.b - 1) ** 2 / spread
        gamma = (self.n / self.blocks) ** 3 / spread**1.5
        return sqrt(spread / visits), beta / visits, gamma * rows**3 / visits**1.5

    def visits_to(self, error: float) -> int:
        """Return the visits after which the terms of Theorem 1 add up to at most ``error``.

        Example:
            >>> CorgiPileBound(n=1, b=1, blocks=1000, h_d=1.0).visits_to(1e-3)  # 1 / error, and lower terms
            1001
        """
        if not error > 0:
            raise BadArgument(f"error must be above 0, got {error}")
        low, high = 0.0, 1.0
        while sum(self.convex(high)) > error:
            low, high = high, 2 * high
            if high > MAX_VISITS:
                raise BadArgument(f"error must be reachable in {MAX_VISITS:.0e} visits, got {error}")
        while high - low > max(0.5, high * 1e-12):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(self.convex(middle)) > error else (low, middle)
        return ceil(high)

    def seconds_to(self, error: float, *, latency: float, transfer: float) -> tuple[float, float]:
        """Return the seconds to an error by the first term: SGD on random rows, and CorgiPile (paper, section 4.2).

        Args:
            error: Distance to the smallest loss.
            latency: Seconds until a random read begins.
            transfer: Seconds to read a row.

        Example:
            >>> bound = CorgiPileBound(n=51, b=100, blocks=501, h_d=100.0)
            >>> rows, blocks = bound.seconds_to(1e-3, latency=1e-2, transfer=1e-6)
            >>> round(rows, 3), round(blocks, 3)
            (10.001, 9.09)
        """
        if not error > 0:
            raise BadArgument(f"error must be above 0, got {error}")
        visits = self.variance / error
        return visits * (latency + transfer), self.factor * visits * (latency / self.b + transfer)


def theorem_step(
    epoch: int, *, n: int, b: int, strong: float, smooth: float, hessian: float = 0.0, gradient: float = 0.0
) -> float:
    """Return the learning rate of Theorem 1 in an epoch, ``6 / (b n mu (s + a))``.

    Args:
        epoch: Epoch s, from 0.
        n: Blocks in the buffer.
        b: Rows per block.
        strong: Constant of strong convexity, mu.
        smooth: Lipschitz constant of the gradients, L.
        hessian: Lipschitz constant of the Hessians.
        gradient: Bound of the gradients' norms, G; 0 leaves its terms out, so the rate may exceed the theorem's.

    Example:
        >>> round(theorem_step(0, n=10, b=100, strong=1.0, smooth=1.0), 6)
        0.00025
    """
    slow = (8 * smooth * gradient + 24 * smooth**2 + 28 * hessian * gradient) / strong**2
    return 6 / (b * n * strong * (epoch + max(slow, 24 * smooth / strong)))


def log_reachable_share(rows: int, ranks: int, fraction: float) -> float:
    """Return the natural logarithm of the share of all permutations that an exchange of a fixed fraction reaches.

    The share is ``sigma / N!`` with ``sigma = (QN)! (N/M)!^M / (QN/M)!^M``. Local shuffling reaches ``(N/M)!^M``.

    Example:
        >>> round(log_reachable_share(8, 2, 0.0), 3), log_reachable_share(8, 2, 1.0)  # 1 of 70
        (-4.248, 0.0)
    """
    sent = fraction * rows
    exchanged = lgamma(sent + 1) - ranks * lgamma(sent / ranks + 1)
    return min(0.0, exchanged + ranks * lgamma(rows / ranks + 1) - lgamma(rows + 1))


def shuffling_error(rows: int, ranks: int, fraction: float) -> float:
    """Return epsilon, the total variation between an exchange's permutations and uniform ones (Meng et al., 2017).

    It is 1 to machine precision unless the table is tiny or nearly all rows are exchanged, so it does not rank
    exchanges: compare them by deff and accuracy.

    Example:
        >>> round(shuffling_error(8, 2, 0.0), 3), shuffling_error(10_000, 8, 0.9), shuffling_error(10_000, 8, 1.0)
        (0.986, 1.0, 0.0)
    """
    return abs(expm1(log_reachable_share(rows, ranks, fraction)))


def partial_terms(rows: int, ranks: int, fraction: float, *, batch: int, epochs: int) -> tuple[float, float, float]:
    """Return the three terms of the bound of partial local shuffling for convex losses.

    They are ``sqrt(1/(S N))``, ``log N / N`` and ``N epsilon² / (b M)`` for S epochs, N rows, batches of b and M ranks.

    Example:
        >>> [round(term, 4) for term in partial_terms(10_000, 8, 1.0, batch=32, epochs=4)]
        [0.005, 0.0009, 0.0]
    """
    epsilon = shuffling_error(rows, ranks, fraction)
    return sqrt(1 / (epochs * rows)), log(rows) / rows, rows * epsilon**2 / (batch * ranks)
