#!/usr/bin/env python3
"""Records what ONNX Runtime computes with its own operators, and with those of ONNX that the backend tests have no float case
of: one folder per case in the form of these tests. Needs onnx, onnxruntime, numpy.

    python tests/onnx/contrib/record.py [OPERATOR …]       # all when none is named
"""
import os
import pathlib
import shutil
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
rng = np.random.default_rng(7)


def f(*dims, scale=1.0):
    return (rng.standard_normal(dims) * scale).astype(np.float32)


def cache(length, half):
    angles = np.arange(length)[:, None] / (10.0 ** np.arange(half))[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


COS, SIN = cache(8, 2)
MASK = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
CASES = [
    ("BiasGelu", {}, [f(2, 4), f(4)], 1),
    ("Gelu", {}, [f(2, 4)], 1),
    ("FastGelu", {}, [f(2, 4), f(4)], 1),
    ("QuickGelu", dict(alpha=1.5), [f(2, 4)], 1),
    ("SkipLayerNormalization", dict(epsilon=1e-3), [f(2, 3, 4), f(2, 3, 4), f(4), f(4), f(4)], 1),
    ("SkipLayerNormalization", {}, [f(2, 3, 4), f(2, 3, 4), f(4)], 1),
    ("SkipSimplifiedLayerNormalization", dict(epsilon=1e-3), [f(2, 3, 4), f(2, 3, 4), f(4), f(4)], 1),
    ("SimplifiedLayerNormalization", dict(axis=-1, epsilon=1e-3), [f(2, 3, 4), f(4)], 1),
    ("EmbedLayerNormalization", dict(epsilon=1e-3),
     [np.array([[1, 2, 0], [3, 3, 1]], np.int32), np.array([[0, 0, 1], [1, 1, 0]], np.int32), f(5, 4), f(6, 4), f(2, 4),
      f(4), f(4)], 2),
    ("FusedMatMul", dict(alpha=0.5, transA=1, transB=1), [f(2, 4, 3), f(2, 5, 4)], 1),
    ("FusedGemm", dict(alpha=0.5, beta=2.0, transB=1, activation="Relu"), [f(2, 4), f(3, 4), f(3)], 1),
    ("FusedConv", dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1], activation="Relu"), [f(1, 2, 4, 4), f(3, 2, 3, 3), f(3)], 1),
    ("RotaryEmbedding", {}, [f(2, 2, 3, 4), np.array([[0, 1, 2], [3, 4, 5]], np.int64), COS, SIN], 1),
    ("RotaryEmbedding", dict(interleaved=1), [f(2, 2, 3, 4), np.array([2], np.int64), COS, SIN], 1),
    ("RotaryEmbedding", dict(num_heads=2, rotary_embedding_dim=4),
     [f(2, 3, 12), np.array([[0, 1, 2], [3, 4, 5]], np.int64), COS, SIN], 1),
    ("Attention", dict(num_heads=2), [f(2, 4, 6), f(6, 12), f(12)], 1),
    ("Attention", dict(num_heads=2, unidirectional=1), [f(2, 4, 6), f(6, 12), f(12)], 1),
    ("Attention", dict(num_heads=2, scale=0.3), [f(2, 4, 6), f(6, 12), f(12), MASK], 1),
    ("MultiHeadAttention", dict(num_heads=2), [f(2, 4, 8), f(2, 4, 8), f(2, 4, 8)], 1),
    ("MultiHeadAttention", dict(num_heads=2), [f(2, 3, 8), f(2, 4, 8), f(2, 4, 8), f(24), MASK], 1),
    ("GroupQueryAttention", dict(num_heads=4, kv_num_heads=2),
     [f(2, 4, 32), f(2, 4, 16), f(2, 4, 16), None, None, np.array([3, 3], np.int32), np.array(4, np.int32)], 1),
    ("GroupQueryAttention", dict(num_heads=4, kv_num_heads=2, do_rotary=1),
     [f(2, 4, 64), f(2, 4, 32), f(2, 4, 32), None, None, np.array([3, 3], np.int32), np.array(4, np.int32), *cache(8, 8)], 1),
    # Regions: inside, in part outside, of no size, far outside, halves of pixels.
    ("MaxRoiPool", dict(pooled_shape=[2, 3]),
     [f(2, 3, 6, 5), np.array([[0, 0, 0, 4, 5], [1, 1, 2, 3, 3], [1, -3, -2, 2, 1], [0, 3, 3, 9, 12], [0, 2, 2, 2, 2],
                               [1, 3, 4, 1, 1], [1, 20, 20, 30, 30]], np.float32)], 1),
    ("MaxRoiPool", dict(pooled_shape=[3, 2], spatial_scale=0.5),
     [f(1, 2, 7, 8), np.array([[0, 1, 3, 11, 13], [0, -1, 5, 9, 7], [0, 3, 0, 15, 12.4]], np.float32)], 1),
    ("GlobalLpPool", dict(p=2), [f(2, 3, 4, 5)], 1),
    ("GlobalLpPool", dict(p=3), [f(2, 3, 7)], 1),
    ("Trilu", dict(upper=1), [f(2, 4, 5)], 1),
    ("Trilu", dict(upper=0), [f(4, 4), np.array(-1, np.int64)], 1),
]
OF_ONNX = ("SimplifiedLayerNormalization", "MaxRoiPool", "GlobalLpPool", "Trilu")


def main():
    seen = {}
    for op, attributes, inputs, count in CASES:
        number = seen[op] = seen.get(op, 0) + 1
        if sys.argv[1:] and op not in sys.argv[1:]:
            continue
        folder = HERE / f"{op.lower()}_{number}"
        names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
        outputs = [f"y{i}" for i in range(count)]
        if op == "GroupQueryAttention":
            outputs += ["present_key", "present_value"]
        domain = "" if op in OF_ONNX else "com.microsoft"
        node = helper.make_node(op, names, outputs, domain=domain, **attributes)
        graph = helper.make_graph(
            [node], op, [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                         for n, x in zip(names, inputs) if n],
            [helper.make_tensor_value_info(outputs[0], TensorProto.FLOAT, None)])
        model = helper.make_model(graph, ir_version=8,
                                  opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        results = session.run(outputs[:1], {n: x for n, x in zip(names, inputs) if n})
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder / "test_data_set_0")
        onnx.save(model, folder / "model.onnx")
        for kind, arrays in (("input", [x for x in inputs if x is not None]), ("output", results)):
            for i, array in enumerate(arrays):
                (folder / "test_data_set_0" / f"{kind}_{i}.pb").write_bytes(
                    numpy_helper.from_array(np.asarray(array)).SerializeToString())


main()
