#!/usr/bin/env python3
"""Times `zerocc check` on a model of many gigabytes that takes no disk: the weights are holes of a sparse file, but for
the first and the last row of each, and a tied table whose transposed copy is to be found.

    pip install onnx numpy
    python tests/damage/large.py build/release/bin/zerocc FOLDER
"""

import os
import pathlib
import resource
import subprocess
import sys
import time

import numpy
import onnx
from onnx import TensorProto, helper

VOCABULARY, WIDTH, LAYERS = 65536, 2048, 48


def external(name, dims, offset):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    entries = {"location": "large.data", "offset": str(offset), "length": str(4 * dims[0] * dims[1])}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def main():
    zerocc, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    random = numpy.random.default_rng(1)
    offset, tensors, nodes = 0, [], [helper.make_node("Gather", ["table", "ids"], ["h0"])]
    with open(folder / "large.data", "wb") as file:
        def put(name, rows, columns):
            nonlocal offset
            tensors.append(external(name, [rows, columns], offset))
            for row in (0, rows - 1):
                file.seek(offset + 4 * row * columns)
                file.write(random.standard_normal(columns).astype(numpy.float32).tobytes())
            offset += 4 * rows * columns

        put("table", VOCABULARY, WIDTH)
        for layer in range(LAYERS):
            put(f"w{layer}", WIDTH, 4 * WIDTH)
            put(f"v{layer}", 4 * WIDTH, WIDTH)
            nodes.append(helper.make_node("MatMul", [f"h{layer}", f"w{layer}"], [f"a{layer}"]))
            nodes.append(helper.make_node("Relu", [f"a{layer}"], [f"b{layer}"]))
            nodes.append(helper.make_node("MatMul", [f"b{layer}", f"v{layer}"], [f"h{layer + 1}"]))
        tensors.append(external("val_1", [WIDTH, VOCABULARY], offset))
        file.flush()
        table = numpy.memmap(folder / "large.data", numpy.float32, "r", 0,
                             (VOCABULARY, WIDTH))
        first, last = table[0].copy(), table[-1].copy()
        for row in range(WIDTH):  # the transpose has two elements in each row
            file.seek(offset + 4 * row * VOCABULARY)
            file.write(first[row].tobytes())
            file.seek(offset + 4 * ((row + 1) * VOCABULARY - 1))
            file.write(last[row].tobytes())
        offset += 4 * WIDTH * VOCABULARY
        file.truncate(offset)
    nodes.append(helper.make_node("MatMul", [f"h{LAYERS}", "val_1"], ["logits"]))
    graph = helper.make_graph(
        nodes, "large", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 128])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 128, VOCABULARY])], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "large.onnx").write_bytes(model.SerializeToString())
    begin = time.monotonic()
    done = subprocess.run([zerocc, "check", str(folder / "large.onnx")], capture_output=True, text=True)
    seconds = time.monotonic() - begin
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    assert done.returncode == 0, done.stderr
    assert 'tied "val_1" to "table"' in done.stdout, done.stdout
    blocks = os.stat(folder / "large.data").st_blocks * 512
    print(f"{offset / 2**30:.1f} GiB of weights ({blocks / 2**20:.0f} MiB on disk): {seconds:.1f} s, {memory:.0f} MiB")


if __name__ == "__main__":
    main()
