"""What weights of zero lose on labels, the rate that follows one that diverges, and when a loss stands still."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgipile import _kernel
from corgipile.losses import loss_of
from corgipile.steps import step_of

PROGRAM = r"""
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "sgd/baseline.h"
#include "sgd/epochs.h"

/* Say of all lengths of a history, and of what does not rest by it, whether it stands still. */
static void rest(void)
{
    const double known[] = {4, 2, 1, 0.9995, 0.9994};
    for (int averaged = 0; averaged < 2; averaged++)
        for (int64_t n = 0; n <= 5; n++) {
            cp_sgd s = {.loss = CP_SQUARED, .rule = CP_SAME, .features = 8, .rate = 0.01, .averaged = averaged};
            double *losses = malloc((size_t)n * 8 + 1);
            memcpy(losses, known, (size_t)n * 8);
            printf("%d ", cp_sgd_has_plateaued(&s, losses, n));
            free(losses);
        }
}

int main(int count, char **argument)
{
    rest();
    FILE *file = fopen(argument[count - 1], "rb");
    uint32_t length;
    while (fread(&length, 4, 1, file) == 1) {
        char *bytes = malloc(length); /* ends where its labels do, so that a sanitizer sees any read past them */
        int64_t head[2], rows = (length - 24) / 20;
        cp_untrained all = {0}, parts = {0};
        uint64_t bits[2];
        if (fread(bytes, 1, length, file) != length)
            return 1;
        memcpy(head, bytes, 16);
        cp_loss_choice of = {(enum cp_loss)head[0], 0};
        memcpy(&of.parameter, bytes + 16, 8);
        double *y = malloc((size_t)rows * 8), *weight = malloc((size_t)rows * 8);
        int32_t *visit = malloc((size_t)rows * 4);
        memcpy(y, bytes + 24, (size_t)rows * 8), memcpy(weight, bytes + 24 + rows * 8, (size_t)rows * 8);
        memcpy(visit, bytes + 24 + rows * 16, (size_t)rows * 4);
        cp_untrained_add(&all, &(cp_labelled){of, y, weight, rows}, visit);
        for (int64_t at = 0, some; at < rows; at += some) {
            some = rows - at < head[1] ? rows - at : head[1];
            cp_untrained_add(&parts, &(cp_labelled){of, y, weight, some}, visit + at);
        }
        double found[] = {cp_untrained_loss(&all, of, 0), cp_untrained_loss(&parts, of, 0)};
        memcpy(bits, found, sizeof bits);
        printf("%" PRIu64 " %" PRIu64 " %d\n", bits[0], bits[1], cp_sgd_diverged(found[0] * 1.2, found[0]));
        free(bytes), free(y), free(weight), free(visit);
    }
    return fclose(file);
}
"""
NUMBERS = ["linear", "huber", "huber:0.5", "quantile:0.9", "poisson"]
AWKWARD = [0.0, -0.0, 1.0, -3.5, 1e308, -1e308, np.inf, -np.inf, np.nan, 5e-324]


def value(kind, label):
    """Return the loss of a score of 0, as docs say it."""
    loss = loss_of(kind, 0)
    size = abs(label)
    if loss.name == "huber":
        delta = loss.parameter
        return size * size / 2 if size < delta else delta * (size - delta / 2)
    if loss.name == "quantile":
        return loss.parameter * size if label > 0 else (1 - loss.parameter) * size
    if loss.name == "poisson":
        return 1 + (label * np.log(label) if label > 0 else 0) - label
    return size * size / 2


def added(loss, labels, weights=None, sums=None, numbers=None):
    """Add labels and return the mean of the first model."""
    sums = np.zeros((1, 3)) if sums is None else sums
    _kernel.sgd_untrained(loss.code, loss.parameter, labels, weights, sums, numbers)
    return sums[0, 0] / sums[0, 1] if sums[0, 1] > 0 else 0.0


def test_sums_are_those_of_python_under_sanitizers(sanitized):
    rng = np.random.default_rng(0)
    cases, want = [], [0, 0, 0, 0, 1, 1, *[0] * 6]
    for kind in NUMBERS:
        for rows, part in ((1, 1), (7, 3), (500, 64)):
            loss = loss_of(kind, 0)
            labels, weights = np.abs(rng.normal(size=rows)) * 9, rng.integers(0, 3, rows) / 2
            labels[rows // 2 :: 5] = rng.choice(AWKWARD, len(labels[rows // 2 :: 5]))
            weights[::11] = rng.choice([1, np.nan, -1, np.inf])
            visit = rng.permutation(rows).astype(np.int32)
            head = struct.pack("<qqd", loss.code, part, loss.parameter)
            cases.append(head + labels.tobytes() + weights.tobytes() + visit.tobytes())
            found = added(loss, labels[visit], weights[visit])
            bits = int(np.float64(found).view(np.uint64))
            want += [bits, bits, int(0 < found < np.inf)]
    assert sanitized(PROGRAM, cases) == want


@given(
    kind=st.sampled_from(NUMBERS),
    labels=st.lists(st.one_of(st.sampled_from(AWKWARD[:4]), st.floats(-1e6, 1e6)), min_size=1, max_size=40),
    part=st.integers(1, 10),
)
def test_the_mean_is_that_of_the_losses_however_labels_come(kind, labels, part):
    loss, sums = loss_of(kind, 0), np.zeros((1, 3))
    every = np.array([np.nan, *labels, np.inf])
    for start in range(0, len(every), part):
        found = added(loss, every[start : start + part], None, sums)
    kept = [label for label in labels if label >= 0 or not loss.not_negative]
    assert sums[0, 1] == len(kept)
    assert found == pytest.approx(np.mean([value(kind, label) for label in kept]) if kept else 0, rel=1e-9)
    assert found == added(loss, every)
    two = np.zeros((2, 3))
    added(loss, np.repeat(every, 2), None, two, np.tile([0, 1], len(every)))
    assert (two == sums).all()


def test_rates_are_lowered_to_a_fifth_until_they_are_nothing():
    assert _kernel.sgd_lowered(0.5) == 0.1
    assert _kernel.sgd_lowered(9e-13) == 0
    decay, auto = step_of("decay"), step_of("auto")
    for far, times in ((0, 0), (29, 0), (31, 10), (501, 250), (2e5, 31250), (np.inf, 0)):
        off = np.log1p(far)
        assert _kernel.sgd_again(decay.code, decay.usual, 1.0, 1.0, off) == times * decay.usual
        assert _kernel.sgd_again(decay.code, 0.002, 1.0, 1.0, off) == 0  # one that was lowered
        assert _kernel.sgd_again(auto.code, auto.usual, 1.0, 1.0, off) == 0  # one that is not to be chosen
        assert _kernel.sgd_again(decay.code, 0.05, 2.0, 1.0, off) == 0.05 / 5
        rate = times * decay.usual
        while rate > 1e-9:  # lowered as often as may be, it is not raised again
            assert _kernel.sgd_again(decay.code, rate, 1.0, 1.0, off) == 0
            rate = _kernel.sgd_lowered(rate)
            assert rate != decay.usual
    assert _kernel.sgd_again(decay.code, 0.01, np.nan, 1.0, 0.0) == 0.01 / 5
    assert _kernel.sgd_adrift(1.2, 1.0)
    assert not _kernel.sgd_adrift(1.05, 1.0)
    assert not _kernel.sgd_adrift(np.nan, 1.0)  # which is an error of its own


def test_what_does_not_fit_is_refused():
    loss, one, sums = loss_of("linear", 0), np.ones(1), np.zeros((2, 3))
    for arguments in (
        (99, 0.0, one, None, sums, None), (loss.code, 0.0, one, np.ones(2), sums, None),
        (loss.code, 0.0, one, None, np.zeros(4), None), (loss_of("svm", 2).code, 0.0, one, None, sums, None),
        (loss.code, 0.0, one, None, np.zeros(0), None), (loss.code, 0.0, one, None, sums, np.array([0, 1])),
        (loss.code, 0.0, one, None, sums, np.array([2])), (loss.code, 0.0, one, None, sums, np.array([-1])),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"loss must be|the same length|three entries|models must be 0 to 1, got"):
            _kernel.sgd_untrained(*arguments)
    assert not sums.any()
