#!/usr/bin/env python3
"""--weights with what save_pretrained writes, beside the training PyTorch recorded from the same weights.

    pip install torch transformers onnx numpy
    python tests/e2e/hub_weights.py

The ONNX file that zero-run gets has other weights, so that those of the folder must be the ones that count.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnx.numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS, BIN = ROOT / "models", ROOT / "build/release/bin"
sys.path.insert(0, str(MODELS))
import export
import families

# Names that the exporter has lost.
BERT = ["--weight-name", "model.cls.predictions.decoder.bias=cls.predictions.bias",
        "--weight-name", "embedding_2=bert.embeddings.position_embeddings.weight"]
CASES = [("llama", lambda: families.llama().model, []), ("bert", lambda: families.bert().model, BERT),
         ("t5", lambda: families.t5().model, []), ("gpt2", export.build_gpt2, [])]


def disturbed(path, out):
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == numpy.float32 and values.size > 16:
            noise = numpy.random.default_rng(1).random(values.shape, numpy.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values / 2 + noise / 100, tensor.name))
    onnx.save(model, out)


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


failed = 0
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for family, build, names in CASES:
        build().save_pretrained(folder / family, max_shard_size="20KB")
        for exporter in ("torchscript", "dynamo"):
            name = f"{family}_{exporter}"
            disturbed(MODELS / f"{name}.onnx", folder / "model.onnx")
            compiled = run(BIN / "zerocc", "compile", MODELS / f"{name}.onnx", "--args", MODELS / f"{name}.args", "-o",
                           folder / "plan.zplan", "--ranks", 2, "--stage", 3)
            result = run(BIN / "zero-run", folder / "plan.zplan", "--model", folder / "model.onnx", "--data",
                         MODELS / f"{name}.data.npz", "--steps", 3, "--check-against", MODELS / f"{name}.ref.npz",
                         "--weights", folder / family, *(names if exporter == "dynamo" else []))
            agrees = compiled.returncode == 0 and result.returncode == 0 and "agrees" in result.stdout
            failed += not agrees
            print(name, "agrees" if agrees else "DIFFERS\n" + compiled.stderr + result.stdout + result.stderr)
sys.exit(failed)
