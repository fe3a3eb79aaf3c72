#!/usr/bin/env python3
"""What exporters do to models on the way to ONNX: small modules, exported by both of PyTorch's exporters, and how the
undamaged modules train.

    pip install torch onnx onnxscript numpy
    python tests/damage/export.py                  all of them
    python tests/damage/export.py --only experts   one

NAME_torchscript.onnx and NAME_dynamo.onnx are the files; NAME.data.npz holds 12 samples, four a step. EXPORT.ref.npz
is the training of the module in plain PyTorch, in the form of models/record.py: `loss` and `grad_norm` per step,
grad/PARAMETER of the first step, weight/PARAMETER after three. A parameter is called as in the module, which is the name
an importer has to find; where the file holds its transpose, so does the recording.
"""

import argparse
import logging
import math
import pathlib
import warnings

import numpy
import onnx
import onnx.numpy_helper
import torch
from torch import nn
from torch.nn import functional

FOLDER = pathlib.Path(__file__).resolve().parent
STEPS, BATCH = 3, 4

# --- the modules -----------------------------------------------------------------------------------------------------


class FalseTies(nn.Module):
    """Fresh norms and biases are equal: both exporters make them one."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(3))
        self.linears = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        for linear in self.linears:
            nn.init.zeros_(linear.bias)

    def forward(self, x):
        for norm, linear in zip(self.norms, self.linears):
            x = x + torch.tanh(linear(norm(x)))
        return x


class Tied(nn.Module):
    """The output layer is the table of the embedding; folding the transpose makes a second copy of it."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.mix = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.embed(ids))))


class FoldedNorm(nn.Module):
    """Behind convolutions, batch norm becomes part of them."""

    def __init__(self):
        super().__init__()
        layers = []
        for _ in range(3):
            layers += [nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

        with torch.no_grad():
            for norm in self.layers[1::3]:
                norm.bias.uniform_(-1, 1)
                norm.running_mean.uniform_(-1, 1)

    def forward(self, x):
        return self.layers(x)


class BatchNorm(nn.Module):
    """In front of a layer, batch norm stays, but infers."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, 5)
        with torch.no_grad():
            self.norm.weight.uniform_(0.5, 1.5)
            self.norm.bias.uniform_(-1, 1)
            self.norm.running_mean.uniform_(-1, 1)
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.norm(x)))


class GroupNorm(nn.Module):
    """Group norm, and instance norm without weights, become InstanceNormalization with ones and zeros that look like
    weights; the weights of group norm get other dims. Between them is what images need."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, stride=2, padding=2)
        self.norm = nn.GroupNorm(2, 8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.pointwise = nn.Conv2d(8, 6, 1, bias=False)
        self.plain = nn.InstanceNorm2d(6)
        self.slope = nn.PReLU(6)
        self.dilated = nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=2)
        self.up = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1)
        self.places = nn.Conv2d(4, 2, 1)
        self.line = nn.Conv1d(4, 3, 5, padding=2)
        self.head = nn.Linear(3 * 8 + 4, 5)

    def forward(self, x):
        h = functional.max_pool2d(torch.tanh(self.norm(self.stem(x))), 3, 2, 1)
        h = self.slope(self.plain(self.pointwise(self.depthwise(h))))
        h = functional.avg_pool2d(self.dilated(h), 3, 1, 1) + h
        h = functional.interpolate(self.up(h), scale_factor=2, mode="bilinear", align_corners=False)
        grid = torch.tanh(self.places(h)).permute(0, 2, 3, 1)
        h = h + functional.grid_sample(h, grid, mode="bilinear", padding_mode="border", align_corners=False)
        line = functional.max_pool1d(self.line(h.flatten(2)), 32)
        return self.head(torch.cat([line.flatten(1), h.mean((2, 3))], 1))


class Dropped(nn.Module):
    """Attention probabilities and a layer under dropout."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6, 18)
        self.out = nn.Linear(6, 6)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        p = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(6), dim=-1)
        return self.out(self.drop(p @ v))


class Smoothed(nn.Module):
    """Its own loss smooths labels; the exporter leaves the smoothing out, without a word."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 5)

    def forward(self, x, labels):
        return functional.cross_entropy(self.fc(x), labels, label_smoothing=0.1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        return self.fc(x)


def rotated(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Constants(nn.Module):
    """Buffers that look like weights: rotary frequencies, a table of positions, a mask, an epsilon."""

    def __init__(self, length=4):
        super().__init__()
        self.qkv = nn.Linear(8, 24, bias=False)
        self.out = nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.rand(8) + 0.5)
        self.register_buffer("inv_freq", 1 / 100 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))
        self.register_buffer("table", torch.sin(torch.arange(length * 8.0).reshape(1, length, 8)))
        self.register_buffer("ids", torch.arange(length).reshape(1, length))

    def forward(self, x):
        x = x + self.table
        x = self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        frequencies = (self.inv_freq[None, :, None].float() @ self.ids[:, None, :].float()).transpose(1, 2)
        angles = torch.cat([frequencies, frequencies], dim=-1)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = (rotated(t, angles.cos(), angles.sin()) for t in (q, k))
        p = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(8) + self.mask, dim=-1)
        return self.out(p @ v)


class Cached(nn.Module):
    """A decoder layer that takes and gives its cache."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.qkv = nn.Linear(8, 24)
        self.head = nn.Linear(8, 11, bias=False)

    def forward(self, ids, past_key=None, past_value=None):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        past = 0
        if past_key is not None:
            past = past_key.shape[1]
            k, v = torch.cat([past_key, k], dim=1), torch.cat([past_value, v], dim=1)
        length = ids.shape[1]
        here, there = torch.arange(length)[:, None] + past, torch.arange(length + past)[None, :]
        scores = (q @ k.transpose(-1, -2) / math.sqrt(8)).masked_fill(there > here, torch.finfo(torch.float32).min)
        logits = self.head(x + torch.softmax(scores, dim=-1) @ v)
        return logits if past_key is None else (logits, k, v)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = (nn.Linear(*dims, bias=False) for dims in ((8, 12), (12, 8), (8, 12)))

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    """Each token goes to two of three experts: rows that data chooses."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 3, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(3))
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        batch, length, width = x.shape
        rows = x.reshape(-1, width)
        weights, chosen = torch.topk(functional.softmax(self.gate(rows), dim=1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        sums = torch.zeros((batch * length, width))
        masks = functional.one_hot(chosen, num_classes=3).permute(2, 1, 0)
        for i in range(3):
            choice, token = torch.where(masks[i])
            sums.index_add_(0, token, self.experts[i](rows[token]) * weights[token, choice, None])
        return self.head(sums.reshape(batch, length, width))


class Guarded(nn.Module):
    """Attention whose wholly masked rows are guarded against NaN: forward only, its gradients are NaN in PyTorch. The
    training recorded is that of the same function without a NaN."""

    safe = False

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6, 18)
        self.register_buffer("seen", torch.tensor([[0, 0, 0], [1, 0, 1], [1, 1, 1]], dtype=torch.bool))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if self.safe:
            p = torch.softmax((q @ k.transpose(-1, -2)).masked_fill(~self.seen, -1e30), dim=-1)
            return (p * self.seen.any(dim=-1, keepdim=True)) @ v
        scores = q @ k.transpose(-1, -2) + torch.where(self.seen, 0.0, float("-inf"))
        p = torch.softmax(scores, dim=-1)
        return torch.where(torch.isnan(p), 0.0, p) @ v


class Half(nn.Module):
    """Weights of 16 bits around a norm in f32."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.fc2 = nn.Linear(8, 4)

    def forward(self, x):
        h = self.fc1(x)
        h = self.norm(h.float()).to(h.dtype)
        return self.fc2(torch.tanh(h))


# --- the data and the losses -----------------------------------------------------------------------------------------


def floats(*dims):
    return lambda random: random.standard_normal((STEPS * BATCH, *dims)).astype(numpy.float32)


def integers(high, *dims):
    return lambda random: random.integers(high, size=(STEPS * BATCH, *dims)).astype(numpy.int64)


def mse(module, batch, inputs, **options):
    return functional.mse_loss(module(*inputs), batch["target"])


def cross_entropy(module, batch, inputs, label_smoothing=0.0):
    logits = module(*inputs)
    return functional.cross_entropy(logits.flatten(0, -2), batch["labels"].flatten(), label_smoothing=label_smoothing)


class Case:
    def __init__(self, module, data, loss=mse, inputs=("x",), outputs=("y",), trains=True, **options):
        self.module, self.data, self.loss = module, data, loss
        self.inputs, self.outputs, self.trains = list(inputs), list(outputs), trains
        self.smoothing = options.pop("smoothing", 0.0)   # of the recorded loss
        self.batch_norm = options.pop("batch_norm", False)  # the recorded training normalizes by the batch
        self.mode = options.pop("mode", "eval")          # of the export
        self.exporters = options.pop("exporters", ("torchscript", "dynamo"))
        self.extra = options.pop("extra", {})            # inputs of the export alone
        self.dtype = options.pop("dtype", torch.float32)
        self.dropped = options.pop("dropped", ())        # parameters that the dynamo exporter leaves out
        assert not options


ZERO_BIASES = ["linears.0.bias", "linears.1.bias", "linears.2.bias"]  # a Gemm without one gives the same result

CASES = {
    "false_ties": Case(FalseTies, {"x": floats(6), "target": floats(6)}, dropped=ZERO_BIASES),
    "tied": Case(Tied, {"ids": integers(11, 5), "labels": integers(11, 5)}, cross_entropy, ["ids"], ["logits"]),
    "folded_norm": Case(FoldedNorm, {"x": floats(2, 4, 4)}, trains=False),
    "batch_norm": Case(BatchNorm, {"x": floats(6), "target": floats(5)}, batch_norm=True),
    "dropped": Case(Dropped, {"x": floats(3, 6), "target": floats(3, 6)}),
    "dropped_in_training": Case(Dropped, {"x": floats(3, 6), "target": floats(3, 6)}, mode="train"),
    "smoothed": Case(Smoothed, {"x": floats(6), "labels": integers(5)}, inputs=["x", "labels"], outputs=["loss"],
                     trains=False, exporters=["dynamo"]),
    "unsmoothed": Case(Classifier, {"x": floats(6), "labels": integers(5)}, cross_entropy, outputs=["logits"],
                       smoothing=0.1),
    "constants": Case(Constants, {"x": floats(4, 8), "target": floats(4, 8)}),
    "constant_nodes": Case(FalseTies, {"x": floats(6), "target": floats(6)}, dropped=ZERO_BIASES),
    "cached": Case(Cached, {"ids": integers(11, 5), "labels": integers(11, 5)}, cross_entropy, ["ids"],
                   ["logits", "present_key", "present_value"],
                   extra={"past_key": torch.zeros(BATCH, 2, 8), "past_value": torch.zeros(BATCH, 2, 8)}),
    "experts": Case(Experts, {"x": floats(4, 8), "target": floats(4, 8)}),
    "guarded": Case(Guarded, {"x": floats(3, 6), "target": floats(3, 6)}),
    "half": Case(Half, {"x": floats(6), "target": floats(4)}, dtype=torch.float16),
    "bfloat": Case(Half, {"x": floats(6), "target": floats(4)}, dtype=torch.bfloat16),
    "group_norm": Case(GroupNorm, {"x": floats(3, 16, 16), "target": floats(5)}),
}

# --- exporting -------------------------------------------------------------------------------------------------------


def make_constants_nodes(model):
    """As some tools write weights."""
    graph = model.graph
    nodes = [onnx.helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in graph.initializer]
    kept = list(graph.node)
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes + kept)


def export(name, case, exporter, module, data):
    path = FOLDER / f"{name}_{exporter}.onnx"
    arguments = tuple(torch.from_numpy(data[key][:BATCH]) for key in case.inputs)
    arguments = tuple(a.to(case.dtype) if a.is_floating_point() else a for a in arguments) + tuple(case.extra.values())
    names = [*case.inputs, *case.extra]
    module = module.to(case.dtype)
    if case.dtype != torch.float32:
        module.norm.float()
    module.train(case.mode == "train")
    if exporter == "dynamo":
        batch = torch.export.Dim("batch", min=2)
        shapes = [{0: batch, 1: torch.export.Dim("past")} if key in case.extra else {0: batch} for key in names]
        torch.onnx.export(module, arguments, str(path), dynamo=True, input_names=names, output_names=case.outputs,
                          dynamic_shapes=shapes, external_data=False, verbose=False)
    else:
        training = torch.onnx.TrainingMode.TRAINING if case.mode == "train" else torch.onnx.TrainingMode.EVAL
        axes = {key: {0: "batch", 1: "past"} if key in case.extra else {0: "batch"} for key in names}
        torch.onnx.export(module, arguments, str(path), dynamo=False, input_names=names, output_names=case.outputs,
                          dynamic_axes=axes, opset_version=17, training=training)
    model = onnx.load(str(path))
    for node in model.graph.node:  # traces of the Python stack are of the machine, not of the model
        kept = [entry for entry in node.metadata_props if entry.key.endswith(("name_scopes", "namespace"))]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        node.doc_string = ""
    for key in ("graph", "model"):
        message = model.graph if key == "graph" else model
        del message.metadata_props[:]
        message.doc_string = ""
    if name == "constant_nodes":
        make_constants_nodes(model)
    onnx.save(model, str(path))
    return model


# --- training --------------------------------------------------------------------------------------------------------


def tensors_of(model):
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    return tensors


def stored(model, name, value):
    """The value as the file's layout has it."""
    tensors = tensors_of(model)
    if value.ndim == 2 and name not in tensors and any(numpy.array_equal(t, value.T) for t in tensors.values()):
        return lambda array: numpy.ascontiguousarray(array.T)
    if value.ndim == 1 and name not in tensors:
        for t in tensors.values():
            if t.ndim > 1 and numpy.array_equal(t.ravel(), value):
                return lambda array, dims=t.shape: array.reshape(dims)
    return lambda array: array


def train(case, module, model, data, dropped):
    module.train(case.batch_norm)
    for name in dropped:
        module.get_parameter(name).requires_grad_(False)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    named = {p: name for name, p in parameters.items() if name in tensors_of(model)}  # of two names, that of the file
    parameters = {named.get(p, name): p for name, p in module.named_parameters() if p.requires_grad}
    layouts = {name: stored(model, name, p.detach().numpy().copy()) for name, p in parameters.items()}
    groups = [{"params": [p for p in parameters.values() if p.ndim >= 2], "weight_decay": 0.1},
              {"params": [p for p in parameters.values() if p.ndim < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, foreach=False)
    result = {"loss": numpy.zeros(STEPS), "grad_norm": numpy.zeros(STEPS)}
    for step in range(STEPS):
        batch = {key: torch.from_numpy(array[step * BATCH:(step + 1) * BATCH]) for key, array in data.items()}
        optimizer.zero_grad()
        inputs = [batch[key] for key in case.inputs]
        options = {"label_smoothing": case.smoothing} if case.smoothing else {}
        loss = case.loss(module, batch, inputs, **options)
        loss.backward()
        if step == 0:
            result.update({f"grad/{name}": layouts[name](p.grad.numpy().copy()) for name, p in parameters.items()})
        result["loss"][step] = loss.item()
        result["grad_norm"][step] = nn.utils.clip_grad_norm_(parameters.values(), float("inf"), foreach=False).item()
        optimizer.step()
    result.update({f"weight/{name}": layouts[name](p.detach().numpy().copy()) for name, p in parameters.items()})
    return result


def main():
    parser = argparse.ArgumentParser(description="exports damaged models, and records how undamaged ones train")
    parser.add_argument("--only", metavar="NAME", choices=CASES, help="one of " + ", ".join(CASES))
    only = parser.parse_args().only
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for number, (name, case) in enumerate(CASES.items()):
        if only not in (None, name):
            continue
        random = numpy.random.default_rng(number)
        data = {key: make(random) for key, make in case.data.items()}
        if case.trains:
            numpy.savez_compressed(FOLDER / f"{name}.data.npz", **data)
        for exporter in case.exporters:
            torch.manual_seed(number)
            model = export(name, case, exporter, case.module(), data)
            counts = f"{len(model.graph.node)} nodes, {len(model.graph.initializer)} initializers"
            if case.trains:
                torch.manual_seed(number)
                module = case.module()
                if case.mode == "train":
                    module.drop.p = 0.0
                module.safe = True
                if case.dtype != torch.float32:  # the file has rounded the initial values
                    with torch.no_grad():
                        for key, p in module.named_parameters():
                            p.copy_(p if key.startswith("norm") else p.to(case.dtype).float())
                result = train(case, module, model, data, case.dropped if exporter == "dynamo" else ())
                numpy.savez_compressed(FOLDER / f"{name}_{exporter}.ref.npz", **result)
                counts += f", loss {result['loss'][0]:.4f} -> {result['loss'][-1]:.4f}"
            print(f"{name}_{exporter}: {counts}")


if __name__ == "__main__":
    main()
