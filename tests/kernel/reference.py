"""Linear models by SGD as the textbook writes them, in float64: what kernel/sgd/sgd.h is compared with."""

import numpy as np


def derivative(loss, margin, y):
    if loss == "logistic":
        return -y / (1 + np.exp(y * margin))
    if loss == "svm":
        return -y if y * margin < 1 else 0.0
    return margin - y


def value(loss, margin, y):
    if loss == "logistic":
        return np.logaddexp(0, -y * margin)
    if loss == "svm":
        return max(0.0, 1 - y * margin)
    return (margin - y) ** 2 / 2


def sgd(loss, x, y, *, rate, epochs, batch, l2, intercept, outputs=1):
    """Return weights [outputs, features], biases, and the last epoch's summed loss."""
    x = np.asarray(x, np.float64)
    w, b = np.zeros((outputs, x.shape[1])), np.zeros(outputs)
    for _ in range(epochs):
        total = 0.0
        for start in range(0, len(x), batch):
            rows = slice(start, start + batch)
            slopes = np.zeros((len(x[rows]), outputs))
            for i, (row, label) in enumerate(zip(x[rows], y[rows], strict=True)):
                z = w @ row + b
                if loss == "softmax":
                    p = np.exp(z - z.max())
                    total += np.log(p.sum()) + z.max() - z[int(label)]
                    slopes[i] = p / p.sum() - (np.arange(outputs) == label)
                elif loss == "hinges":
                    sides = np.where(np.arange(outputs) == label, 1, -1)
                    total += sum(value("svm", z[k], sides[k]) for k in range(outputs))
                    slopes[i] = [derivative("svm", z[k], sides[k]) for k in range(outputs)]
                else:
                    total += value(loss, z[0], label)
                    slopes[i] = derivative(loss, z[0], label)
            w = (1 - rate * l2) * w - rate * (slopes.T @ x[rows]) / len(slopes)
            b = b - rate * slopes.mean(axis=0) * intercept
    return w, b, total
