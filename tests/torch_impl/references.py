"""What the step is checked against, as formulas in NumPy.

Legend: B rows, I, H, O widths.
"""

import numpy as np


def mlp_loss_and_gradients(weights, x_BI, y_BO):
    """The MLP in NumPy: sum of squared errors and its gradient for each parameter."""
    h_BH = x_BI @ weights["fc1.weight"].T + weights["fc1.bias"]
    sigmoid_BH = 1 / (1 + np.exp(-h_BH))
    a_BH = h_BH * sigmoid_BH
    error_BO = a_BH @ weights["fc2.weight"].T + weights["fc2.bias"] - y_BO
    d_out_BO = 2 * error_BO
    d_h_BH = (d_out_BO @ weights["fc2.weight"]) * (sigmoid_BH + a_BH * (1 - sigmoid_BH))
    gradients = {
        "fc1.weight": d_h_BH.T @ x_BI,
        "fc1.bias": d_h_BH.sum(0),
        "fc2.weight": d_out_BO.T @ a_BH,
        "fc2.bias": d_out_BO.sum(0),
    }
    return (error_BO**2).sum(), gradients


def adamw_in_numpy(param, grad, m, v, lr, t, optimizer, decayed):
    """The textbook update with decoupled decay in float64; t counts from 1."""
    m = optimizer.beta1 * m + (1 - optimizer.beta1) * grad
    v = optimizer.beta2 * v + (1 - optimizer.beta2) * grad**2
    update = (m / (1 - optimizer.beta1**t)) / (np.sqrt(v / (1 - optimizer.beta2**t)) + optimizer.eps)
    return param - lr * (update + (optimizer.weight_decay * param if decayed else 0)), m, v
