"""Textbook SGD for linear models in float64, the reference of kernel/sgd/sgd.h."""

import numpy as np

DERIVATIVES = {
    "logistic": lambda m, y: -y / (1 + np.exp(y * m)),
    "svm": lambda m, y: -y if y * m < 1 else 0.0,
    "linear": lambda m, y: m - y,
    "huber": lambda m, y, delta=1.0: np.clip(m - y, -delta, delta),
    "squared_hinge": lambda m, y: -2 * y * max(0.0, 1 - y * m),
    "poisson": lambda m, y: np.exp(m) - y,
    "quantile": lambda m, y, tau=0.5: float(m > y) * (1 - tau) - float(m < y) * tau,
}
VALUES = {
    "logistic": lambda m, y: np.logaddexp(0, -y * m),
    "svm": lambda m, y: max(0.0, 1 - y * m),
    "linear": lambda m, y: (m - y) ** 2 / 2,
    "huber": lambda m, y, delta=1.0: (m - y) ** 2 / 2 if abs(m - y) < delta else delta * (abs(m - y) - delta / 2),
    "squared_hinge": lambda m, y: max(0.0, 1 - y * m) ** 2,
    "poisson": lambda m, y: np.exp(m) - y * m + (y * np.log(y) - y if y > 0 else 0.0),
    "quantile": lambda m, y, tau=0.5: max(tau * (y - m), (1 - tau) * (m - y)),
}


def parts(loss):
    name, _, parameter = loss.partition(":")
    return name, [float(parameter)] if parameter else []


REST = {"hinges": "svm", "ovr_logistic": "logistic"}  # each class against the rest


def derivative(loss, margin, y):
    name, parameter = parts(loss)
    return DERIVATIVES[name](margin, y, *parameter)


def value(loss, margin, y):
    name, parameter = parts(loss)
    return VALUES[name](margin, y, *parameter)


def sgd(loss, x, y, *, rate, epochs, batch, l2, intercept, outputs=1, start=None, weights=None):
    """Return weights [outputs, features], biases, and the last epoch's summed loss; rows count for ``weights``."""
    weights = np.ones(len(x)) if weights is None else weights
    x = np.asarray(x, np.float64)
    w, b = start or (np.zeros((outputs, x.shape[1])), np.zeros(outputs))
    for _ in range(epochs):
        total = 0.0
        for first in range(0, len(x), batch):
            rows = slice(first, first + batch)
            slopes = np.zeros((len(x[rows]), outputs))
            for i, (row, label, weight) in enumerate(zip(x[rows], y[rows], weights[rows], strict=True)):
                z = w @ row + b
                if loss == "softmax":
                    p = np.exp(z - z.max())
                    total += weight * (np.log(p.sum()) + z.max() - z[int(label)])
                elif loss in REST:
                    sides = np.where(np.arange(outputs) == label, 1, -1)
                    total += weight * sum(value(REST[loss], z[k], sides[k]) for k in range(outputs))
                else:
                    total += weight * value(loss, z[0], label)
                slopes[i] = weight * slopes_of(loss, z, label)
            w = (1 - rate * l2) * w - rate * (slopes.T @ x[rows]) / len(slopes)
            b = b - rate * slopes.mean(axis=0) * intercept
    return w, b, total


def slopes_of(loss, z, label):
    """Return the derivatives of a row's loss by its scores."""
    if loss == "softmax":
        p = np.exp(z - z.max())
        return p / p.sum() - (np.arange(len(z)) == label)
    if loss in REST:
        return np.array([derivative(REST[loss], z[k], 1 if k == label else -1) for k in range(len(z))])
    return np.array([derivative(loss, z[0], label)])


def keeps_roots(x, outputs, *, sparse, batch, penalties):
    """Say whether kernel/sgd/cached_rsqrt.h learns from such rows: their weights stay in registers."""
    return not sparse and batch == 1 and outputs == 1 and not penalties and x[0].nbytes <= 4 * 64


def ruled(
    loss,
    x,
    y,
    *,
    step,
    rate,
    epochs,
    batch,
    l1,
    l2,
    intercept,
    max_norm=None,
    outputs=1,
    weights=None,
    rooted=False,
    lazy=False,
):
    """Return weights and biases by a step of kernel/sgd/rules.h; G and s begin at 0.

    ``rooted``: as rooted.h; ``lazy``: of sparse rows.
    """
    weights = np.ones(len(x)) if weights is None else weights
    x = np.asarray(x, np.float64)
    w, b, rows, norm, total = np.zeros((outputs, x.shape[1])), np.zeros(outputs), 0, 0.0, 0.0
    squares, bias_squares, size = np.zeros_like(w), np.zeros(outputs), np.zeros(x.shape[1])
    means, bias_means, updates, adam = np.zeros_like(w), np.zeros(outputs), 0, step == "adam"
    adaptive, normalized = step in ("adagrad", "normalized"), step == "normalized"
    for epoch in range(epochs):
        by = rate / np.sqrt(1 + epoch) if step == "inverse" else rate
        roots, bias_roots = squares.copy(), bias_squares.copy()
        for first in range(0, len(x), batch):
            slopes = []
            rows_of = slice(first, first + batch)
            for row, label, weight in zip(x[rows_of], y[rows_of], weights[rows_of], strict=True):
                if normalized:
                    larger = np.abs(row) > size
                    w[:, larger] *= (size / np.where(larger, np.abs(row), 1))[larger]
                    size = np.maximum(size, np.abs(row))
                    norm += np.square(np.divide(row, size, where=size > 0, out=np.zeros_like(row))).sum() + intercept
                    rows += 1
                slopes.append(weight * slopes_of(loss, w @ row + b, label))
            g, slope = np.transpose(slopes) @ x[first : first + batch] / len(slopes), np.mean(slopes, axis=0)
            h = by * np.sqrt(rows / norm) if normalized and norm else by
            reach = by
            if adaptive and (l1 or l2):
                total += np.mean(np.square(slopes))
                reach = h / np.sqrt(total) if total else 0.0
            w = w / (1 + reach * l2) if adaptive or adam else w * (1 - by * l2)
            if adaptive:
                squares, bias_squares = squares + g**2, bias_squares + slope**2
                growth = 1.0625 if rooted else 1.0
                roots = np.where(squares > growth * roots, squares, roots)
                bias_roots = np.where(bias_squares > growth * bias_roots, bias_squares, bias_roots)
                g = np.divide(g, np.sqrt(roots), where=roots > 0, out=np.zeros_like(g))
                slope = np.divide(slope, np.sqrt(bias_roots), where=bias_roots > 0, out=np.zeros_like(slope))
            if adam:
                updates += 1
                touched = x[first : first + batch].any(axis=0) if lazy else np.ones(x.shape[1], bool)
                means[:, touched] = 0.9 * means[:, touched] + 0.1 * g[:, touched]
                growth = 1.0625 if rooted else 0.0  # of V, up to which the root is that of before
                before, bias_before = squares.copy(), bias_squares
                squares[:, touched] = 0.999 * squares[:, touched] + 0.001 * (g[:, touched] ** 2 + 1e-16)
                bias_means = 0.9 * bias_means + 0.1 * slope
                bias_squares = 0.999 * bias_squares + 0.001 * (slope**2 + 1e-16)
                late = np.where(squares <= growth * before, before, squares)
                bias_late = np.where(bias_squares <= growth * bias_before, bias_before, bias_squares)
                by_updates = 1 - 0.9**updates, 1 - 0.999**updates
                g, slope = (
                    part / by_updates[0] / np.sqrt(np.where(square > 0, square, 1) / by_updates[1])
                    for part, square in ((means * touched, late), (bias_means, bias_late))
                )
            if normalized:
                g = np.divide(g, size, where=size > 0, out=np.zeros_like(g))
            w, b = w - h * g, b - h * slope * intercept
            w = np.sign(w) * np.maximum(0, np.abs(w) - reach * l1)
            w *= 1 if max_norm is None else min(1, max_norm / max(np.linalg.norm(w), 1e-300))
    return w, b
