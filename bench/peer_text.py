"""Vowpal Wabbit on words: reads lines of text, hashes n-grams, learns, and scores lines held out."""
# ruff: noqa: PLC0415 - imported in the peers' environment

import os
import time
from pathlib import Path

import numpy as np

CLOCK = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter


def wabbit(path):
    """Return the run function for some settings; the library is imported before timing."""
    from vowpalwabbit import Workspace

    def run(ngrams=2, rate=0.5, passes=1, **_):
        for leftover in (f"{path}.cache", f"{path}.model"):
            Path(leftover).unlink(missing_ok=True)
        cached = f"-k --cache_file {path}.cache --passes {passes} --holdout_off" if passes > 1 else ""
        how = f"--loss_function logistic -l {rate} -b 18" + (f" --ngram {ngrams}" if ngrams > 1 else "")
        start = CLOCK()
        Workspace(f"-d {path}-train.vw {how} {cached} -f {path}.model --quiet").finish()
        seconds = CLOCK() - start
        Workspace(f"-t -d {path}-test.vw -i {path}.model -p {path}.said --quiet").finish()
        right = (np.loadtxt(f"{path}.said") > 0) == (np.load(f"{path}-test.npy") > 0)
        return {"seconds": seconds, "score": 100 * float(right.mean())}

    return run


JOBS = {"wabbit": wabbit}
