#!/usr/bin/env python3
"""Trains two models of this folder as record.py does, with other optimizers, and writes X.optimizers.npz.

    pip install torch onnx onnxscript transformers numpy
    python models/record_optimizers.py

Keys: grad/NAME of the first step, then per optimizer OPTIMIZER/loss, grad_norm, weight/NAME, spread/NAME as in X.ref.npz.
All are PyTorch's own but Lion, which PyTorch has not: it is written down here as in its paper (arXiv 2302.06675).
"""

import numpy
import onnx
import torch

import export
import record

MODELS = ["mlp", "mlp_classifier"]


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr, betas):
        super().__init__(parameters, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                moment = state.setdefault("moment", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((moment * beta1 + p.grad * (1 - beta1)).sign_(), alpha=-group["lr"])
                moment.mul_(beta2).add_(p.grad, alpha=1 - beta2)


# Weight decay is 0.1 for matrices; the e2e test compiles with the same numbers.
OPTIMIZERS = {
    "adam": lambda groups: torch.optim.Adam(groups, lr=2e-3, betas=(0.8, 0.99), eps=1e-6, foreach=False),
    "nesterov": lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.8, nesterov=True, foreach=False),
    "lion": lambda groups: Lion(groups, lr=5e-4, betas=(0.9, 0.99)),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=2e-3, alpha=0.98, eps=1e-6, foreach=False),
    "groups": lambda groups: torch.optim.AdamW(groups, lr=2e-3, foreach=False),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=0.02, eps=1e-6, foreach=False),
}


def grouped(parameters, weight_decay):
    """The first layer slower and decaying as a whole, the last faster, the others as record.groups has them."""
    first, last, others = parameters[:2], parameters[-2:], parameters[2:-2]
    fast = [{**group, "lr": 4e-3} for group in record.groups(last, weight_decay)]
    return [{"params": first, "lr": 2e-4, "weight_decay": 0.3}, *fast, *record.groups(others, weight_decay)]


def record_model(name):
    recording, module = record.RECORDINGS[name], export.build(name)
    data = recording.data()
    names = record.Parameters(module, onnx.load(str(export.FOLDER / f"{name}.onnx")))
    result = {}
    for kind, make in OPTIMIZERS.items():
        def optimizer(parameters, make=make, kind=kind):
            return make((grouped if kind == "groups" else record.groups)(parameters, 0.1))
        trained = record.train(module, recording, data, optimizer, names)
        exact = record.train(module, recording, data, optimizer, names, dtype=torch.float64)
        for key, value in trained.items():
            if key.startswith("grad/"):
                result[key] = value
                continue
            result[f"{kind}/{key}"] = value
            if key.startswith("weight/"):
                spread = numpy.abs(value.astype(numpy.float64) - exact[key]).max()
                result[f"{kind}/{key.replace('weight/', 'spread/', 1)}"] = numpy.float64(spread)
        print(f"{name}, {kind}: loss {trained['loss'][0]:.4f} -> {trained['loss'][-1]:.4f}")
    numpy.savez_compressed(export.FOLDER / f"{name}.optimizers.npz", **result)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for model in MODELS:
        record_model(model)
