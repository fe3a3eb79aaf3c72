#!/usr/bin/env python3
"""Records what ONNX Runtime makes of small modules that torch.jit.script exports with their loops, lists and branches: one
folder per module in the form of ONNX's backend tests. Needs torch, onnx, onnxruntime, numpy."""
import os
import pathlib
import shutil
import warnings
from typing import List

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import numpy_helper
from torch import nn

HERE = pathlib.Path(__file__).parent
SHAPE = (2, 5, 6)


class Unbind(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x):
        parts = torch.split(x, 3, dim=2)
        rows = torch.unbind(x[:, :, :3], 1)
        return self.a(parts[0]) + self.b(parts[1]) + torch.stack(rows, 1).sum(2, keepdim=True)


class Chunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(4, 4)

    def forward(self, x):
        a, b = torch.chunk(self.a(x), 2, dim=-1)
        rows: List[torch.Tensor] = []
        for part in torch.chunk(x, 5, 1):
            rows.append(part[:, :, :4])
        return self.b(a * torch.sigmoid(b)) + torch.cat(rows, 1)


class Break(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 4), nn.Linear(4, 4)

    def forward(self, x):
        y, i = self.a(x), 0
        while i < 3:
            y = torch.tanh(self.b(y))
            i += 1
            if i == 2:
                break
        return y


class Pop(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 4)

    def forward(self, x):
        stack: List[torch.Tensor] = []
        for t in range(x.size(1)):
            stack.append(x[:, t])
        rows: List[torch.Tensor] = []
        while len(stack) > 0:
            rows.append(torch.tanh(stack.pop()))
        return self.a(torch.stack(rows, 1))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 4)

    def forward(self, x):
        z = self.a(x)
        y = torch.zeros_like(z)
        for t in range(1, x.size(1)):
            y[:, t] = z[:, t] * 0.5 + z[:, t - 1]
        return y


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.a = nn.LSTMCell(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        h, c = torch.zeros(x.size(0), 8), torch.zeros(x.size(0), 8)
        rows: List[torch.Tensor] = []
        for t in range(x.size(1)):
            h, c = self.cell(x[:, t], (h, c))
            rows.append(h)
        return self.a(torch.stack(rows, 1))


def main():
    warnings.filterwarnings("ignore")
    ort.set_default_logger_severity(4)
    for kind in (Unbind, Chunk, Break, Pop, InPlace, Cell):
        torch.manual_seed(1)
        folder = HERE / f"scripted_{kind.__name__.lower()}"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder / "test_data_set_0")
        path = str(folder / "model.onnx")
        torch.onnx.export(torch.jit.script(kind()), (torch.zeros(SHAPE),), path, dynamo=False, opset_version=17,
                          input_names=["x"], output_names=["y"])
        x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
        y = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for name, array in (("input_0", x), ("output_0", y)):
            (folder / "test_data_set_0" / f"{name}.pb").write_bytes(numpy_helper.from_array(array).SerializeToString())
        ops = [node.op_type for node in onnx.load(path).graph.node]
        print(folder.name, *sorted(set(ops) & {"Loop", "If", "SplitToSequence", "SequenceEmpty", "ConcatFromSequence"}))


main()
