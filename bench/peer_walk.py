"""Timing of a peer: its batches are iterated over, and nothing else."""

import time


def walk(loader, label, out, limit=None):
    """Iterate over a loader, up to a limit; count rows and, if a file is named, store the labels in it.

    ``first`` is the seconds until the first batch, ``head`` its rows.
    """
    rows, kept, first, head = 0, [], None, 0
    start = time.perf_counter()
    for item in loader:
        labels = label(item)
        if first is None:
            first, head = time.perf_counter() - start, len(labels)
        rows += len(labels)
        if out:
            kept.append(labels)
        if limit and rows >= limit:
            break
    seconds = time.perf_counter() - start
    if out:
        import numpy as np  # noqa: PLC0415  # the peers' own

        np.save(out, np.concatenate([np.asarray(part) for part in kept]))
    return {"seconds": seconds, "rows": rows, "first": first, "head": head}


def timed(work):
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
