#!/usr/bin/env python3
"""Trains two models of this folder as record.py does, under torch.autocast, and writes X.precision.npz.

    pip install torch onnx onnxscript transformers numpy
    python models/record_precision.py

Keys are those of X.ref.npz behind PRECISION/ ("bf16/loss", "bf16/weight/NAME"), and grad/NAME of the first step, which
record.py writes without a prefix. distance/PRECISION/loss is the largest relative distance of the losses to the same
training in f32: how much the precision itself changes. spread/NAME is that distance for weight/NAME, so an f32 run lies
within it: the recording bounds a bf16 run, it does not tell it from an f32 one.
"""

import numpy
import onnx
import torch

import export
import record

MODELS = ["mlp", "gpt2_torchscript"]
PRECISIONS = {"bf16": torch.bfloat16}


def record_model(name):
    recording, module = record.RECORDINGS[name], export.build(name)
    data = recording.data()
    names = record.Parameters(module, onnx.load(str(export.FOLDER / f"{name}.onnx")))
    plain = record.train(module, recording, data, record.adamw, names)
    result = {}
    for precision, dtype in PRECISIONS.items():
        def loss(module, batch, inputs, dtype=dtype):
            with torch.autocast("cpu", dtype=dtype):
                return recording.loss(module, batch, inputs)
        trained = record.train(module, recording._replace(loss=loss), data, record.adamw, names)
        for key, value in trained.items():
            result[key if key.startswith("grad/") else f"{precision}/{key}"] = value
        distance = numpy.abs(trained["loss"] / plain["loss"] - 1).max()
        result[f"distance/{precision}/loss"] = numpy.float64(distance)
        for key in trained:
            kind, _, parameter = key.partition("/")
            if kind == "weight":
                spread = numpy.abs(trained[key].astype(numpy.float64) - plain[key]).max()
                result[f"{precision}/spread/{parameter}"] = numpy.float64(spread)
        print(f"{name}, {precision}: loss {trained['loss'][0]:.4f} -> {trained['loss'][-1]:.4f}, "
              f"{distance:.1e} from f32")
    numpy.savez_compressed(export.FOLDER / f"{name}.precision.npz", **result)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for model in MODELS:
        record_model(model)
