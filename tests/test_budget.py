"""The memory budget holds: some cases of `bench/budget.py`, each in its own process."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")
if not Path("/proc/self/clear_refs").exists():
    pytest.skip("a peak is read from /proc", allow_module_level=True)
import budgets

SIZE, MEMORY = 48 << 20, "16MB"  # so that a table held whole is more than may be held
AT_ONCE = 2  # processes
TRIES = 3  # a peak depends on which of several threads is ahead, and on what else the machine does
ALSO = {  # what needs most memory of a shape in a host
    ("duckdb, x1..x28", "workers"): ("no_shuffle", "balanced"),
    ("parquet, groups of 8,192", "reshuffle"): ("corgi2",),
    ("arrow, zstd, many files", "workers"): ("full",),
    ("arrow, structures", "workers"): ("riffle",),
    ("arrow, 5 bytes", "loader"): ("corgipile",),
    ("arrow, 5 bytes", "workers"): ("corgipile", "full"),
    ("arrow, 1 KB, some 1 MB", "workers"): ("block_only",),
}


def _covering():
    """Return some cases: each shape in each host, by orders in turn; of two that stream rows alike, one in turn."""
    found = []
    for turn, shape in enumerate(budgets.SHAPES):
        orders = {}
        for host, order in budgets.cases(shape):
            orders.setdefault(host, []).append(order)
        if "predict" in orders:
            del orders[("convert", "predict")[turn % 2]]
        found += [(shape, host, some[(5 * turn + at) % len(some)]) for at, (host, some) in enumerate(orders.items())]
    found += [(*where, order) for where, orders in ALSO.items() for order in orders]
    for shape, cases in STORED.items():
        found += [(budgets.STORED + shape, host, order) for host, order in cases.items()]
    return list(dict.fromkeys(found))


STORED = {  # in a store: read by blocks, or decoded to a spill file while they come
    "arrow": {"loader": "balanced", "workers": "riffle", "train": "riffle"},
    "parquet, x1..x28, as pandas": {"loader": "riffle", "train": "riffle", "reshuffle": "two-pass"},
    "parquet, groups of 8,192": {"reshuffle": "bmf"},
}
COVERING = _covering()


def _measured(*words):
    """Measure in this process; DataLoader workers are forked, as is usual."""
    multiprocessing.set_start_method("fork", force=True)
    return budgets.child_measure(*words)


def _least(pool, tables, case):
    """Measure until it is within what is allowed, a few times at most."""
    tries = []
    while not tries or (tries[-1][0] > tries[-1][1] and len(tries) < TRIES):
        tries.append(
            budgets.measure(*tables, *case[1:], MEMORY, lambda *words: pool.submit(_measured, *words).result())
        )
    return min(tries)


@pytest.fixture(scope="module")
def processes():
    """Yield a pool that runs each call in a fork of an idle process with everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["budgets", "torch.utils.data", "corgipile.torch", "corgipile.linear"])
    with ProcessPoolExecutor(AT_ONCE, context, max_tasks_per_child=1) as pool:
        yield pool


@pytest.fixture(scope="module")
def measured(request, tmp_path_factory, processes):
    """Yield a future of each selected case; all start at once, before the tests wait for them."""
    folder = tmp_path_factory.mktemp("budget")
    chosen = [item.callspec.params["case"] for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(AT_ONCE) as crew:
        made = {shape: crew.submit(budgets.tables, folder, shape, SIZE) for shape in {case[0] for case in chosen}}
        yield {case: crew.submit(lambda case=case: _least(processes, made[case[0]].result(), case)) for case in chosen}
        crew.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", COVERING, ids=lambda case: "-".join(filter(None, case)))
def test_peaks_stay_within_the_budget(measured, case):
    growth, allowed, refused = measured[case].result()
    assert not refused
    assert growth <= allowed
