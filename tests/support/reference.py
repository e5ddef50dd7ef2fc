"""Linear models by SGD as the textbook writes them, in float64: what kernel/sgd/sgd.h is compared with."""

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


def derivative(loss, margin, y):
    name, parameter = parts(loss)
    return DERIVATIVES[name](margin, y, *parameter)


def value(loss, margin, y):
    name, parameter = parts(loss)
    return VALUES[name](margin, y, *parameter)


def sgd(loss, x, y, *, rate, epochs, batch, l2, intercept, outputs=1, start=None):
    """Return weights [outputs, features], biases, and the last epoch's summed loss."""
    x = np.asarray(x, np.float64)
    w, b = start or (np.zeros((outputs, x.shape[1])), np.zeros(outputs))
    for _ in range(epochs):
        total = 0.0
        for first in range(0, len(x), batch):
            rows = slice(first, first + batch)
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
