#!/usr/bin/env python3
"""Writes X.values beside each X.onnxtxt: inputs drawn at random and what ONNX's reference evaluator makes of them; of loops
ONNX Runtime, as the reference joins the rows of a Loop where the specification stacks them.

    pip install onnx numpy onnxruntime
    python tests/onnx/values/record.py [X …]       # all when none is named

One line a tensor: `input` or `output`, name, type, and its elements. Symbolic dims are 2. Integer inputs are drawn from
[0, 3), as every model here allows.
"""

import pathlib
import sys

import numpy
import onnx.parser
from onnx.reference import ReferenceEvaluator

TYPES = {numpy.dtype("float32"): "f32", numpy.dtype("int64"): "i64", numpy.dtype("bool"): "bool"}


def draw(random, value):
    tensor = value.type.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else 2 for d in tensor.shape.dim]
    if tensor.elem_type == onnx.TensorProto.FLOAT:
        return random.standard_normal(dims).astype(numpy.float32)
    if tensor.elem_type == onnx.TensorProto.BOOL:
        return random.random(dims) < 0.5
    return random.integers(0, 3, size=dims).astype(numpy.int64)


def line(kind, name, array):
    dims = ",".join(map(str, array.shape))
    elements = " ".join(repr(x) if isinstance(x, float) else str(int(x)) for x in array.reshape(-1).tolist())
    return f"{kind} {name} {TYPES[array.dtype]}[{dims}] {elements}".rstrip() + "\n"


for path in sorted(pathlib.Path(__file__).parent.glob("*.onnxtxt")):
    if sys.argv[1:] and path.stem not in sys.argv[1:]:
        continue
    model = onnx.parser.parse_model(path.read_text())
    random = numpy.random.default_rng(len(path.name))
    inputs = {value.name: draw(random, value) for value in model.graph.input}
    if path.stem == "loops":
        import onnxruntime
        outputs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    else:
        outputs = ReferenceEvaluator(model).run(None, inputs)
    with path.with_suffix(".values").open("w") as file:
        file.writelines(line("input", name, array) for name, array in inputs.items())
        file.writelines(line("output", value.name, numpy.asarray(array))
                        for value, array in zip(model.graph.output, outputs))
    print(path.name)
