#!/usr/bin/env python3
"""Trains two models of this folder as record.py does, under torch.autocast, and writes X.bf16.npz and X.f16.npz.

    pip install torch onnx onnxscript transformers numpy
    python models/record_precision.py

Keys are those of X.ref.npz. distance/loss is the largest relative distance of the losses to the same training in f32: how
much the precision itself changes. spread/NAME is that distance for weight/NAME. With f16 the loss is scaled by 2^16.

autocast also rounds sums and activations, so losses and weights only bound a 16-bit run: an f32 run lies within them, too.
rounded/NAME tells the two apart: the gradient of the first step where every product, forward and backward, has its operands
and its result rounded and is otherwise f32 (RoundedProducts), less that in f32.
"""

import numpy
import onnx
import torch

import export
import record

MODELS = ["mlp", "gpt2_torchscript"]
# zerocc's backward begins with 1 / all labels of a step, and the update puts right what is off by those that do not count
# (53 of 128 in the first step); products of the backward are rounded in between.
SEEDS = {"mlp": 1.0, "gpt2_torchscript": 75 / 128}
PRECISIONS = {"bf16": (torch.bfloat16, 1.0), "f16": (torch.float16, 2.0**16)}


class RoundedProduct(torch.autograd.Function):
    """a @ b of matrices, or of equally many of them."""

    @staticmethod
    def forward(context, a, b, dtype):
        context.dtype = dtype
        a, b = a.to(dtype).float(), b.to(dtype).float()
        context.save_for_backward(a, b)
        return (a @ b).to(dtype).float()

    @staticmethod
    def backward(context, gradient):
        a, b = context.saved_tensors
        gradient = gradient.to(context.dtype).float()
        to_a, to_b = gradient @ b.transpose(-1, -2), a.transpose(-1, -2) @ gradient
        return to_a.to(context.dtype).float(), to_b.to(context.dtype).float(), None


class RoundedProducts(torch.overrides.TorchFunctionMode):
    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def product(self, a, b):
        if b.dim() == 2:
            return RoundedProduct.apply(a.reshape(-1, a.shape[-1]), b, self.dtype).reshape(*a.shape[:-1], b.shape[-1])
        assert a.shape[:-2] == b.shape[:-2]
        return RoundedProduct.apply(a, b, self.dtype)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.nn.functional.linear:
            x, weight, bias = (*args, None)[:3]
            out = self.product(x, weight.T)
            return out if bias is None else out + bias
        if function is torch.addmm:
            return self.product(args[1], args[2]) + args[0]
        if function in (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__):
            return self.product(*args)
        assert function not in (torch.bmm, torch.baddbmm, torch.mm, torch.nn.functional.scaled_dot_product_attention), function
        return function(*args, **(kwargs or {}))


def record_model(name):
    recording, module = record.RECORDINGS[name], export.build(name)
    data = recording.data()
    names = record.Parameters(module, onnx.load(str(export.FOLDER / f"{name}.onnx")))

    def train(mode, scale):
        def loss(module, batch, inputs):
            with mode:
                return recording.loss(module, batch, inputs)
        return record.train(module, recording._replace(loss=loss), data, record.adamw, names, scale=scale)

    plain = record.train(module, recording, data, record.adamw, names)
    for precision, (dtype, scale) in PRECISIONS.items():
        result = train(torch.autocast("cpu", dtype=dtype), scale)
        rounded = train(RoundedProducts(dtype), scale * SEEDS[name])
        for key in list(result):
            kind, _, parameter = key.partition("/")
            if kind == "weight":
                result[f"spread/{parameter}"] = numpy.abs(result[key].astype(numpy.float64) - plain[key]).max()
            elif kind == "grad":
                difference = rounded[key].astype(numpy.float64) - plain[key]
                result[f"rounded/{parameter}"] = difference.astype(numpy.float32)
        distance = result["distance/loss"] = numpy.abs(result["loss"] / plain["loss"] - 1).max()
        numpy.savez_compressed(export.FOLDER / f"{name}.{precision}.npz", **result)
        print(f"{name}, {precision}: loss {result['loss'][0]:.4f} -> {result['loss'][-1]:.4f}, {distance:.1e} from f32")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for model in MODELS:
        record_model(model)
