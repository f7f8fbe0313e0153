"""Edits of the optimizer, the clipping, the schedule and the reduction of the loss: both sides make them.

Must not: compute; `step` holds the constants that they change.
"""

from spec.edits.kinds import BELOW_ONE, NOT_NEGATIVE, POSITIVE, Kind

_TORCH, _JAX = "torch", "jax"

OF_STEP = {
    "clip_eps": Kind(
        what="clip by max_norm / (norm + value) instead of max_norm / norm",
        reach="step",
        shows="clipped",
        signature="one ratio for all tensors",
        values=(1e-6, 1e-3),
        scale="linear",
        within=NOT_NEGATIVE,
        mend={
            _TORCH: "clip by max_norm / (norm + {value})",
            _JAX: "clip by max_norm / (norm + {value}); optax.clip_by_global_norm has 0",
        },
    ),
    "max_norm": Kind(
        what="gradients are clipped at norm value",
        reach="step",
        shows="clipped",
        signature="one ratio for all tensors",
        values=(0.5, 1.0, 10.0),
        scale="linear",
        within=POSITIVE,
        mend={
            _TORCH: "clip_grad_norm_(parameters, {value})",
            _JAX: "optax.clip_by_global_norm({value})",
        },
    ),
    "clip_parts": Kind(
        what="the mean gradient of each micro-batch is clipped by itself before the sum (1), or not (0)",
        reach="step",
        shows="grad",
        signature="elementwise",
        values=(1, 0),
        number=bool,
        mend={
            _TORCH: {
                1: "clip_grad_norm_ inside the loop over micro-batches",
                0: "clip_grad_norm_ once, after the last micro-batch",
            },
            _JAX: {
                1: "optax.MultiSteps around the gradient's clipping",
                0: "optax.chain(clip_by_global_norm, ...) on the summed gradient",
            },
        },
    ),
    "adam_eps": Kind(
        what="AdamW's eps is value",
        reach="step",
        shows="param",
        signature="largest where gradients are small",
        values=(1e-8, 1e-6, 1e-4),
        scale="linear",
        within=NOT_NEGATIVE,
        mend={_TORCH: "AdamW(eps={value})", _JAX: "optax.adamw(eps={value})"},
    ),
    "adam_eps_place": Kind(
        what="AdamW's eps stands after the bias correction (0), before it (1), or inside the root (2)",
        reach="step",
        shows="param",
        signature="decays as the correction of v",
        values=(0, 1, 2),
        number=int,
        mend={
            side: {
                0: f"{side}: m_hat / (sqrt(v_hat) + eps)",
                1: f"{side}: lr sqrt(c2) / c1 * m / (sqrt(v) + eps), eps before the bias correction",
                2: f"{side}: m_hat / sqrt(v_hat + eps)",
            }
            for side in (_TORCH, _JAX)
        },
    ),
    "bias_correction": Kind(
        what="AdamW corrects its moments' bias (1) or not (0)",
        reach="step",
        shows="param",
        signature="decays as the correction of v",
        values=(1, 0),
        number=bool,
        mend={
            side: {1: "divide the moments by 1 - beta^t", 0: "leave the bias correction out"}
            for side in (_TORCH, _JAX)
        },
    ),
    "beta1": Kind(
        what="AdamW's beta1 is value",
        reach="step",
        shows="m",
        signature="one ratio for all tensors",
        values=(0.9, 0.95, 0.8),
        scale="linear",
        within=BELOW_ONE,
        mend={_TORCH: "AdamW(betas=({value}, ...))", _JAX: "optax.adamw(b1={value})"},
    ),
    "beta2": Kind(
        what="AdamW's beta2 is value",
        reach="step",
        shows="v",
        signature="one ratio for all tensors",
        values=(0.95, 0.99, 0.999),
        scale="linear",
        within=BELOW_ONE,
        mend={_TORCH: "AdamW(betas=(..., {value}))", _JAX: "optax.adamw(b2={value})"},
    ),
    "weight_decay": Kind(
        what="AdamW's decay is value",
        reach="step",
        shows="param",
        signature="parallel to the weights",
        values=(0.0, 1e-2, 0.1),
        scale="linear",
        within=NOT_NEGATIVE,
        mend={_TORCH: "AdamW(weight_decay={value})", _JAX: "optax.adamw(weight_decay={value})"},
    ),
    "decay_form": Kind(
        what="decay is decoupled (0), added to the gradient (1), or decoupled without the learning rate (2)",
        reach="step",
        shows="m",
        signature="parallel to the weights",
        values=(0, 1, 2),
        number=int,
        mend={
            _TORCH: {0: "torch.optim.AdamW", 1: "torch.optim.Adam(weight_decay=...)", 2: "p -= decay * p"},
            _JAX: {
                0: "optax.adamw",
                1: "optax.chain(optax.add_decayed_weights(...), optax.adam(...))",
                2: "p -= decay * p, outside of optax.scale_by_learning_rate",
            },
        },
    ),
    "decay_all": Kind(
        what="every parameter decays (1), or those that are declared so (0)",
        reach="step",
        shows="param",
        signature="parallel to the weights",
        values=(1, 0),
        number=bool,
        mend={
            _TORCH: {1: "one parameter group", 0: "biases and norms in a group with weight_decay=0"},
            _JAX: {1: "optax.adamw without mask", 0: "optax.adamw(mask=...), biases and norms False"},
        },
    ),
    "decay_tensor": Kind(
        what="this one tensor decays (1), or does not (0)",
        reach="step",
        shows="param",
        signature="parallel to the weights",
        values=(1, 0),
        number=bool,
        targeted=True,
        mend={
            _TORCH: {1: "put it into the group that decays", 0: "put it into a group with weight_decay=0"},
            _JAX: {1: "True for it in the mask of optax.adamw", 0: "False for it in the mask of optax.adamw"},
        },
    ),
    "decay_stacked": Kind(
        what="every parameter of a repeated layer decays (1), or those that are declared so (0)",
        reach="step",
        shows="param",
        signature="parallel to the weights",
        values=(1, 0),
        number=bool,
        mend={
            _TORCH: {1: "decay whatever lies in the list of layers", 0: "decay what has two dimensions"},
            _JAX: {
                1: "a mask by ndim > 1 on stacked layers, whose every array has one axis more",
                0: "mask by name, or by ndim > 2 where layers are stacked",
            },
        },
    ),
    "warmup_offset": Kind(
        what="the learning rate is read value steps later while it warms up, and as it was after that",
        reach="step",
        shows="lr",
        signature="learning rates alone",
        values=(-1, 1, 0),
        number=int,
        mend={
            _TORCH: "warm up by (t + 1 + {value}) / warmup_steps",
            _JAX: "optax warms up by t / warmup_steps, from init_value: that is -1 here",
        },
    ),
    "schedule_offset": Kind(
        what="the learning rate is read value steps later",
        reach="step",
        shows="lr",
        signature="learning rates alone",
        values=(1, -1, 2, -2, 0),
        number=int,
        mend={
            _TORCH: "call scheduler.step() so that update t reads the rate of step t + {value}",
            _JAX: "give the schedule count + {value}",
        },
    ),
    "schedule_end": Kind(
        what="the decay of the learning rate ends value steps later",
        reach="step",
        shows="lr",
        signature="learning rates alone",
        values=(-1, 1, -2, 2, 0),
        number=int,
        mend={
            _TORCH: "decay over steps + {value}: the denominator, or the warm-up counted once more",
            _JAX: "optax's decay_steps counts from step 0, warm-up included: take decay_steps + {value}",
        },
    ),
    "loss_scale": Kind(
        what="the local loss and its gradients are multiplied by value",
        reach="step",
        shows="loss",
        signature="one ratio for all tensors",
        values=(0.5, 2.0),
        scale="linear",
        mend={side: "multiply the loss by {value}" for side in (_TORCH, _JAX)},
    ),
    "grad_scale": Kind(
        what="gradients alone are multiplied by value; 1 / ranks where ranks are averaged twice",
        reach="step",
        shows="grad",
        signature="one ratio for all tensors",
        values=(0.5, 2.0),
        scale="linear",
        mend={
            _TORCH: "multiply gradients by {value}; DDP divides by the ranks once already",
            _JAX: "multiply gradients by {value}; psum where pmean was, or the reverse",
        },
    ),
    "loss_mean": Kind(
        what="the loss is the mean of the micro-batches' means (1) or of all tokens (0)",
        reach="step",
        shows="loss",
        signature="one ratio for all tensors",
        values=(1, 0),
        number=bool,
        mend={
            side: {
                1: "average the means of the micro-batches",
                0: "sum losses and divide once by the tokens of the global batch",
            }
            for side in (_TORCH, _JAX)
        },
    ),
}
