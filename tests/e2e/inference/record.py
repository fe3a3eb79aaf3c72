"""Records what ONNX Runtime makes of a few models: NAME.npz with inputs of seven samples and `expect/OUTPUT`.

    python tests/e2e/inference/record.py        rewrites the files beside this script

Batch norm in training mode is put into inference mode first, which is what an inference plan does.
"""
import pathlib

import numpy
import onnx
import onnxruntime

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parents[2] / "models"
NAMES = ["mlp", "resnet_torchscript", "bert_dynamo", "gpt2_dynamo"]
SAMPLES = 7  # no multiple of ranks times micro-batch

for name in NAMES:
    model = onnx.load(MODELS / f"{name}.onnx")
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            for attribute in node.attribute:
                if attribute.name == "training_mode":
                    attribute.i = 0
            del node.output[1:]
        assert node.op_type != "Dropout", "dropout is not switched off here"
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    data = numpy.load(MODELS / f"{name}.data.npz")
    inputs = {i.name: data[i.name][:SAMPLES] for i in session.get_inputs()}
    outputs = session.run(None, inputs)
    numpy.savez_compressed(HERE / f"{name}.npz", **inputs,
                           **{f"expect/{o.name}": value for o, value in zip(session.get_outputs(), outputs)})
