#!/usr/bin/env python3
"""Trains the models of this folder in plain PyTorch (f32, one thread) and writes what came out.

    pip install torch onnx onnxscript transformers numpy
    python models/record.py                 all models but char_gpt
    python models/record.py --only mlp      one of them

X.data.npz: 80 samples. Keys are the input names of X.onnx, and `labels` (aligned with the logits, -100 = ignored) or
`target`. Step s, counted from 0, trains on samples 4s..4s+3.

X.ref.npz: the recording. NAME is a parameter's name as an importer of X.onnx can find it, see `Parameters`.
    loss, grad_norm      per step; the loss of a step is the mean over all valid labels of its four samples
    grad/NAME            gradient of the first step
    weight/NAME          after three steps
    buffer/NAME          running statistics of batch norm after three steps, by ONNX's definition, see `like_onnx`
    spread/NAME          largest difference of weight/NAME or buffer/NAME to the same training in f64. Adam divides by the size of the
                         gradient, so where the true gradient is 0 (key biases of attention) it moves by rounding noise
    spread/loss, spread/grad_norm
                         the same per step, the largest so far; for networks in which rounding grows from step to step
                         (SENSITIVE). One training in f64 does not show how far that goes: all spreads of theirs are the
                         largest of it and of trainings in f32 from weights that are off by a rounding
    clip/value, clip/…   the same with the global gradient norm clipped to this value in every step
    sgd/…                the same with SGD, without clipping (two models)
    names                JSON, UTF-8 bytes: which parameter of the module is which NAME, and what the exporter did
"""

import argparse
import collections
import copy
import json
import pathlib

import numpy
import onnx
import onnx.numpy_helper
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn
from torch.nn import functional

import export
import families

STEPS = 20
BATCH = 4
IGNORED = -100

# --- the data --------------------------------------------------------------------------------------------------------


def token_data(seed, vocabulary=96, sequence=32):
    """Sequences which mostly follow a rule; the next tokens are the labels, very unequally many of them masked."""
    random = numpy.random.default_rng(seed)
    tokens = numpy.empty((STEPS * BATCH, sequence + 1), numpy.int64)
    tokens[:, 0] = random.integers(vocabulary, size=len(tokens))
    for i in range(sequence):
        surprise = random.random(len(tokens)) < 0.2
        tokens[:, i + 1] = numpy.where(surprise, random.integers(vocabulary, size=len(tokens)),
                                       (3 * tokens[:, i] + 7) % vocabulary)
    labels = tokens[:, 1:].copy()
    for step in range(STEPS):
        # In each step: all valid, a masked prompt, a padded end, and one or two valid labels; in an order of its own.
        everything, prompt, padded, nearly_none = step * BATCH + random.permutation(BATCH)
        labels[prompt, :random.integers(4, 12)] = IGNORED
        labels[padded, random.integers(8, 20):] = IGNORED
        kept = random.choice(sequence, size=random.integers(1, 3), replace=False)
        labels[nearly_none, numpy.setdiff1d(numpy.arange(sequence), kept)] = IGNORED
        if step == 11:
            labels[nearly_none] = IGNORED
    return {"input_ids": tokens[:, :-1].copy(), "labels": labels}


def regression_data(seed):
    random = numpy.random.default_rng(seed)
    x = random.standard_normal((STEPS * BATCH, 20)).astype(numpy.float32)
    target = numpy.sin(x @ random.standard_normal((20, 8)) * 0.5)
    return {"x": x, "target": target.astype(numpy.float32)}


def classification_data(seed, features, classes, masked):
    """One label a sample; with `masked` between none and three of the four samples of a step are ignored."""
    random = numpy.random.default_rng(seed)
    x = random.standard_normal((STEPS * BATCH, features)).astype(numpy.float32)
    labels = (x @ random.standard_normal((features, classes))).argmax(axis=1).astype(numpy.int64)
    for step in range(STEPS) if masked else ():
        labels[step * BATCH + random.permutation(BATCH)[:step % BATCH]] = IGNORED
    return {"x": x, "labels": labels}


# --- the losses: of a whole step --------------------------------------------------------------------------------------


def cross_entropy(module, batch, inputs):
    logits = module(*inputs)
    return functional.cross_entropy(logits.flatten(0, -2), batch["labels"].flatten(), ignore_index=IGNORED)


def mean_squared_error(module, batch, inputs):
    return functional.mse_loss(module(*inputs), batch["target"])


def own_loss(module, batch, inputs):
    return module(*inputs)


Recording = collections.namedtuple("Recording", "inputs data loss clip sgd")

RECORDINGS = {
    "gpt2_torchscript": Recording(["input_ids"], lambda: token_data(11), cross_entropy, 0.1, False),
    "gpt2_dynamo": Recording(["input_ids"], lambda: token_data(11), cross_entropy, 0.1, False),
    "gpt2_external": Recording(["input_ids"], lambda: token_data(11), cross_entropy, 0.1, False),
    "mlp": Recording(["x"], lambda: regression_data(12), mean_squared_error, 0.1, True),
    "mlp_classifier": Recording(["x"], lambda: classification_data(13, 16, 10, True), cross_entropy, 0.1, True),
    "mlp_own_loss": Recording(["x", "labels"], lambda: classification_data(14, 12, 6, False), own_loss, 0.1, False),
}

LOSSES = {"cross_entropy": cross_entropy, "mean_squared_error": mean_squared_error}


def of_family(family, seed):
    entry = families.FAMILIES[family]
    inputs = [name for name in entry.data(0, 2) if name not in ("labels", "target")]
    return Recording(inputs, lambda: entry.data(seed, STEPS * BATCH), LOSSES[entry.loss], None, False)


for index, name in enumerate(export.FAMILY_FILES):
    RECORDINGS[name] = of_family(export.FAMILY_FILES[name], 100 + index)

# --- names -----------------------------------------------------------------------------------------------------------


def all_nodes(graph):
    """Of a graph and of the graphs in its nodes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


class Parameters:
    """Finds the parameters of a module in the ONNX file that an exporter made of it.

    A parameter is called, by the first that holds:
      - as in the module, if an initializer is called so;
      - as in the module, if an Identity node gives this name to an initializer that several parameters share;
      - like the only initializer with its values, with their transpose, or with its values in another shape;
      - INITIALIZER#MODULE_NAME, if it lives in an initializer shared by equal values, and the module path of a node
        that reads it tells which parameter is meant.
    Otherwise the exporter dropped it: it stays at its initial value in the recording. `folded` names parameters that
    live on only in what the exporter has computed from them. A parameter that the module itself freezes has no name.
    """

    def __init__(self, module, model, folded=()):
        self.folded = folded
        self.model = model
        self.initializers = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        self.nodes = list(all_nodes(model.graph))
        self.identities = {n.output[0]: n.input[0] for n in self.nodes if n.op_type == "Identity"}
        self.keys, self.merged, self.dropped, self.transposed, self.copies, self.readers = {}, {}, [], [], {}, {}
        aliases = collections.defaultdict(list)
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if parameter.requires_grad:
                aliases[parameter].append(name)
        self.names = {names[0]: names for names in aliases.values()}
        for parameter, names in aliases.items():
            self.find(names, parameter.detach().numpy())

    def find(self, names, value):
        name = names[0]
        same = [key for key, array in self.initializers.items() if numpy.array_equal(array, value)]
        turned = [key for key, array in self.initializers.items()
                  if value.ndim == 2 and numpy.array_equal(array, value.T) and key not in same]
        reshaped = [key for key, array in self.initializers.items() if numpy.array_equal(array.ravel(), value.ravel())]
        constant = value.size == 0 or bool((value == value.flat[0]).all())
        named = [key for key in names if key in same]
        lifted = [key for key in names if self.identities.get(key) in same]
        read = [key for key in same if self.reads(key, name.rpartition(".")[0])]
        if named:
            self.keys[name] = named[0]
        elif lifted:
            self.keys[name] = lifted[0]
            self.merged[name] = self.identities[lifted[0]]
        elif not constant and len(same + turned) == 1:
            self.keys[name] = (same + turned)[0]
            self.transposed += [name] if turned else []
        elif not constant and not same + turned and len(reshaped) == 1:
            self.keys[name] = reshaped[0]
        elif constant and len(read) == 1:
            self.keys[name] = f"{read[0]}#{name}"
            self.merged[name] = read[0]
        else:
            assert constant or name in self.folded, f"{name}: not found, or more than once: {same + turned}"
            self.dropped.append(name)
            return
        holder = self.merged.get(name, self.keys[name])
        if not constant:
            self.copies.update({key: f"{name}, transposed" for key in turned if key != holder})
        path = name.rpartition(".")[0]
        readers = self.reads(self.keys[name], path) or self.reads(holder, path) or self.reads(holder, "")
        self.readers[name] = readers

    def reads(self, key, path):
        """The reading places of an initializer, as NODE:INPUT, that belong to a module path."""
        return [f"{node.name}:{i}" for node in self.nodes for i, name in enumerate(node.input)
                if name == key and node.op_type != "Identity" and self.belongs(node, path)]

    @staticmethod
    def belongs(node, path):
        scopes = [e.value for e in node.metadata_props if e.key == "pkg.torch.onnx.name_scopes"]
        if not path or (scopes and f"'{path}'" in scopes[0]):
            return True
        return path.replace(".", "/") in node.name.replace(".", "/")

    def stored(self, name, value):
        if name in self.transposed:
            return numpy.ascontiguousarray(value.T)
        return value.reshape(self.initializers.get(self.keys[name], value).shape)

    def json(self):
        return json.dumps({
            "parameters": self.keys,            # name in the module -> NAME
            "merged": self.merged,              # name in the module -> the initializer it now shares with others
            "dropped": self.dropped,            # not in the file at all; frozen in the recording
            "transposed": self.transposed,      # NAME holds the transpose of the module's parameter
            "copies": self.copies,              # further initializer -> the parameter whose values it repeats
            "aliases": {name: names[1:] for name, names in self.names.items() if names[1:]},
            "readers": self.readers,            # name in the module -> NODE:INPUT
        }, indent=1)


# --- training --------------------------------------------------------------------------------------------------------


def groups(parameters, weight_decay):
    """Weight decay for matrices, none for vectors."""
    return [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]


def adamw(parameters):
    return torch.optim.AdamW(groups(parameters, 0.1), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, foreach=False)


def sgd(parameters):
    return torch.optim.SGD(groups(parameters, 0.01), lr=0.05, momentum=0.9, foreach=False)


def like_onnx(module, model):
    """Batch norms start from the statistics in the file (tracing has moved them), and their running variance moves to
    the variance as ONNX's BatchNormalization has it, divided by the number of values; PyTorch divides by one less."""
    norms = {name: m for name, m in module.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}

    def note(norm, inputs, _):
        x = inputs[0].detach().transpose(0, 1).flatten(1)
        norm.excess = norm.momentum * x.var(dim=1, unbiased=True) / x.shape[1]

    for name, norm in norms.items():
        for buffer in ("running_mean", "running_var"):
            getattr(norm, buffer).copy_(torch.from_numpy(stored[f"{name}.{buffer}"].copy()))
        norm.register_forward_hook(note)
    return module


def train(module, recording, data, optimizer, names, clip=None, dtype=torch.float32, scale=1.0):
    """scale: of the loss in front of backward; gradients are divided by it before they are used."""
    module = copy.deepcopy(module).to(dtype)
    data = {key: torch.from_numpy(array) for key, array in data.items()}
    data = {key: tensor.to(dtype) if tensor.is_floating_point() else tensor for key, tensor in data.items()}
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad and name not in names.dropped}
    for name in names.dropped:
        module.get_parameter(name).requires_grad_(False)
    optimizer = optimizer(list(trained.values()))
    result = {"loss": numpy.zeros(STEPS), "grad_norm": numpy.zeros(STEPS)}
    for step in range(STEPS):
        batch = {key: tensor[step * BATCH:(step + 1) * BATCH] for key, tensor in data.items()}
        optimizer.zero_grad()
        loss = recording.loss(module, batch, [batch[key] for key in recording.inputs])
        (loss * scale).backward()
        for p in trained.values():
            p.grad /= scale
        for norm in module.modules():
            if hasattr(norm, "excess"):
                norm.running_var -= norm.excess  # not earlier: backward has saved it
        if step == 0:
            for name, p in trained.items():
                result[f"grad/{names.keys[name]}"] = names.stored(name, p.grad.numpy().copy())
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), float("inf") if clip is None else clip, foreach=False)
        assert clip is None or norm > clip, f"step {step}: the norm {norm} does not reach the clipping value"
        result["loss"][step], result["grad_norm"][step] = loss.item(), norm.item()
        optimizer.step()
        if step == 2:
            for name, p in trained.items():
                result[f"weight/{names.keys[name]}"] = names.stored(name, p.detach().numpy().copy())
            if module.training:
                for name, buffer in module.named_buffers():
                    if buffer.is_floating_point() and "running_" in name:
                        result[f"buffer/{name}"] = buffer.numpy().copy()
    return result


def check_forward(module, model, recording, data):
    """The file computes what the module computes: on the first step's samples, with ONNX's reference evaluator."""
    inputs = {key: data[key][:BATCH] for key in recording.inputs}
    for extra in model.graph.input:
        if extra.name not in inputs:  # of a decoder with a cache: the flag is false, the cache is empty
            dims = [d.dim_value or (BATCH if d.dim_param == "batch" else 0) for d in extra.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(extra.type.tensor_type.elem_type)
            inputs[extra.name] = numpy.zeros(dims, dtype)
    module = copy.deepcopy(module)  # batch norm moves its statistics
    with torch.no_grad():
        expected = module(*(torch.from_numpy(inputs[key]) for key in recording.inputs)).numpy()
    got = ReferenceEvaluator(model).run(None, inputs)[0]
    worst = float(numpy.abs(got - expected).max())
    assert got.shape == expected.shape and worst < 1e-4, f"forward differs by {worst}"
    return worst


# Few samples a batch norm, and ReLU behind it: rounding soon decides on which side of 0 an element is.
SENSITIVE = {"resnet_torchscript", "mobilenet_torchscript"}
# Exports in evaluation mode, whose convolutions have taken up the batch norms behind them.
BATCH_NORM_FOLDED = {"resnet_dynamo", "resnet_folded", "mobilenet_dynamo"}
# Tables that the exporter has read at fixed places.
CONSTANT_FOLDED = {"t5_dynamo": ["model.encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                                 "model.decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]}


def folded_as_in(module, model):
    """The module with folded batch norms, and the values that the exporter rounded to."""
    from torch.fx.experimental.optimization import fuse

    module = fuse(module.eval()).requires_grad_(True)
    for name, parameter in module.named_parameters():
        close = [a for a in map(onnx.numpy_helper.to_array, model.graph.initializer)
                 if a.shape == parameter.shape and numpy.allclose(a, parameter.detach().numpy(), rtol=1e-4, atol=1e-6)]
        assert len(close) == 1, f"{name}: {len(close)} initializers are close to it"
        parameter.data = torch.from_numpy(close[0].copy())
    return module


def off_by_a_rounding(module, seed):
    module, random = copy.deepcopy(module), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter *= 1 + 2**-23 * torch.randint(-1, 2, parameter.shape, generator=random)
    return module


def record(name):
    recording, module = RECORDINGS[name], export.build(name)
    model = onnx.load(str(export.FOLDER / f"{name}.onnx"))
    if name in BATCH_NORM_FOLDED:
        module = folded_as_in(module, model)
    if module.training:
        module = like_onnx(module, model)
    data, names = recording.data(), Parameters(module, model, CONSTANT_FOLDED.get(name, ()))
    worst = check_forward(module, model, recording, data)

    result = train(module, recording, data, adamw, names)
    exact = train(module, recording, data, adamw, names, dtype=torch.float64)
    others = [exact]
    if name in SENSITIVE:
        others += [train(off_by_a_rounding(module, seed), recording, data, adamw, names) for seed in range(8)]

    def distances(key):
        return numpy.stack([numpy.abs(result[key].astype(numpy.float64) - other[key]) for other in others])

    for key in [key for key in result if key.startswith(("weight/", "buffer/"))]:
        result["spread/" + key.partition("/")[2]] = numpy.float64(distances(key).max())
    if name in SENSITIVE:
        for key in ("loss", "grad_norm"):
            result[f"spread/{key}"] = numpy.maximum.accumulate(distances(key).max(axis=0))
    extra = {}
    if recording.clip:
        extra["clip"] = train(module, recording, data, adamw, names, clip=recording.clip)
        result["clip/value"] = numpy.float64(recording.clip)
    if recording.sgd:
        extra["sgd"] = train(module, recording, data, sgd, names)
    for prefix, values in extra.items():
        result.update({f"{prefix}/{key}": value for key, value in values.items() if not key.startswith("grad/")})
    result["names"] = numpy.frombuffer(names.json().encode(), numpy.uint8)

    for suffix, arrays in (("ref", result), ("data", data)):
        numpy.savez_compressed(export.FOLDER / f"{name}.{suffix}.npz", **arrays)
    print(f"{name}: forward differs by {worst:.1e}, loss {result['loss'][0]:.4f} -> {result['loss'][-1]:.4f}, "
          f"grad norm {result['grad_norm'].min():.3f} to {result['grad_norm'].max():.3f}, "
          f"{len(names.keys)} parameters, {len(names.merged)} merged, {len(names.dropped)} dropped")


def main():
    parser = argparse.ArgumentParser(description="records the training of the models of this folder in PyTorch")
    parser.add_argument("--only", metavar="NAME", choices=RECORDINGS, help="one of " + ", ".join(RECORDINGS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in RECORDINGS:
        if arguments.only in (None, name):
            record(name)


if __name__ == "__main__":
    main()
