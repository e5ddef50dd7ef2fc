"""Names of the faults that audits find, and the limit of an even mix; audits and their pages use both."""

__all__ = ["FAULTS", "LOADER_FAULTS", "MAX_EVEN_DEFF"]

FAULTS = (
    "missing rows", "repeated rows", "foreign rows", "dropped tail", "worker copies", "rank imbalance",
    "identical epochs", "correlated epochs", "correlated seeds", "same batches", "not shuffled",
    "not shuffled within blocks", "unshuffled head", "unshuffled tail", "biased window", "worker-local buffers",
)  # fmt: skip
LOADER_FAULTS = (
    "loader fails", "wrong length", "uneven batches", "same permutation", "mixture off its weights", "documents cut",
    "tensor-parallel ranks differ", "no state", "resume fails", "rows lost on resume", "rows repeated on resume",
    "empty epoch after resume", "short epoch after resume", "wrong epoch after resume", "memory grows",
)  # fmt: skip
MAX_EVEN_DEFF = 1.5  # deff up to which an epoch mixes about as well as a full shuffle
