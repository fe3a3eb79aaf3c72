#!/usr/bin/env python3
"""Writes the ONNX models of this folder. Seeds are fixed: the same versions of the packages give the same bytes.

    pip install torch onnx onnxscript transformers numpy
    python models/export.py                 all models
    python models/export.py --only mlp      one of them

The files hold the initial weights which record.py trains from, so run record.py after this.
"""

import argparse
import math
import pathlib
import re
import warnings

import onnx
import torch
from torch import nn
from torch.nn import functional

import families

FOLDER = pathlib.Path(__file__).resolve().parent

# --- the modules -----------------------------------------------------------------------------------------------------


def build_gpt2():
    """A tiny GPT-2 of Hugging Face, straight from its initialisation: all biases are 0, all norm scales are 1."""
    from transformers import GPT2Config, GPT2LMHeadModel

    class Gpt2(GPT2LMHeadModel):
        def forward(self, input_ids):
            # Without a mask the library looks for packed sequences with torch.diff, which the TorchScript exporter
            # does not know. A mask of ones means the same and keeps it from looking.
            mask = torch.ones_like(input_ids) if torch.jit.is_tracing() else None
            return super().forward(input_ids=input_ids, attention_mask=mask).logits

    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=96, n_positions=32, n_embd=48, n_layer=2, n_head=4, use_cache=False, attn_implementation="eager",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    return Gpt2(config).eval()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 40)
        self.fc2 = nn.Linear(40, 24)
        self.out = nn.Linear(24, 8)

    def forward(self, x):
        return self.out(torch.tanh(self.fc2(torch.relu(self.fc1(x)))))


class MlpClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(16, 32)
        self.fc2 = nn.Linear(32, 32)
        self.out = nn.Linear(32, 10)

    def forward(self, x):
        return self.out(functional.gelu(self.fc2(functional.gelu(self.fc1(x)))))


class MlpOwnLoss(nn.Module):
    """Takes the labels as an input and returns its loss: the mean over the micro-batch."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 32)
        self.out = nn.Linear(32, 6)

    def forward(self, x, labels):
        return functional.cross_entropy(self.out(torch.sigmoid(self.fc1(x))), labels)


class Block(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.ones(length, length).tril().bool(), persistent=False)

    def attention(self, x):
        batch, sequence, width = x.shape
        q, k, v = (part.view(batch, sequence, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        scores = (q @ k.transpose(2, 3)) * (1.0 / math.sqrt(width // self.heads))
        scores = scores.masked_fill(~self.mask[:sequence, :sequence], float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        return self.proj(y.transpose(1, 2).reshape(batch, sequence, width))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class CharGpt(nn.Module):
    """A GPT over bytes in the manner of nanoGPT: pre-norm, learned positions, the output layer is the token table."""

    def __init__(self, vocabulary=256, layers=4, width=128, heads=4, length=128):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.ndim >= 2:
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def seeded(module_class, seed):
    torch.manual_seed(seed)
    return module_class()


# --- the exporters ---------------------------------------------------------------------------------------------------


def export_torchscript(module, example, path, inputs, outputs, opset, axes, **options):
    torch.onnx.export(module, example, str(path), dynamo=False, opset_version=opset, input_names=inputs,
                      output_names=outputs, dynamic_axes=axes, **options)


def export_dynamo(module, example, path, inputs, outputs, shapes, external_data=False):
    torch.onnx.export(module, example, str(path), dynamo=True, input_names=inputs, output_names=outputs,
                      dynamic_shapes=shapes, external_data=external_data, verbose=False)
    shorten_stack_traces(path)


def shorten_stack_traces(path):
    """The dynamo exporter notes where each node came from: keep that, without the folders of this machine."""
    model = onnx.load(str(path), load_external_data=False)
    for node in model.graph.node:
        for entry in node.metadata_props:
            entry.value = re.sub(r'File "[^"]*?/(?:site-packages/|(?=[^/"]+"))', 'File "', entry.value)
    onnx.save(model, str(path))


TOKEN_AXES = {"input_ids": {0: "batch", 1: "sequence"}, "logits": {0: "batch", 1: "sequence"}}


def token_example(vocabulary, sequence):
    return (torch.arange(2 * sequence).remainder(vocabulary).view(2, sequence),)


def export_gpt2_torchscript(path):
    export_torchscript(build_gpt2(), token_example(96, 16), path, ["input_ids"], ["logits"], 17, TOKEN_AXES)


def export_gpt2_dynamo(path, external_data=False):
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence", max=32)
    export_dynamo(build_gpt2(), token_example(96, 16), path, ["input_ids"], ["logits"], ({0: batch, 1: sequence},),
                  external_data)


def export_gpt2_external(path):
    pathlib.Path(f"{path}.data").unlink(missing_ok=True)
    export_gpt2_dynamo(path, external_data=True)


def export_mlp(path):
    export_torchscript(build("mlp"), (torch.zeros(2, 20),), path, ["x"], ["y"], 13,
                       {"x": {0: "batch"}, "y": {0: "batch"}})


def export_mlp_classifier(path):
    export_dynamo(build("mlp_classifier"), (torch.zeros(2, 16),), path, ["x"], ["logits"],
                  ({0: torch.export.Dim("batch")},))


def export_mlp_own_loss(path):
    export_torchscript(build("mlp_own_loss"), (torch.zeros(2, 12), torch.zeros(2, dtype=torch.int64)), path,
                       ["x", "labels"], ["loss"], 17, {"x": {0: "batch"}, "labels": {0: "batch"}})


def export_char_gpt(path):
    export_torchscript(build("char_gpt"), token_example(256, 16), path, ["input_ids"], ["logits"], 17, TOKEN_AXES,
                       training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)


# --- the families of families.py -------------------------------------------------------------------------------------


def export_family(family, exporter, opset=None, training=False):
    """A function that writes a family's file: TorchScript (traced, or scripted with its loops) or dynamo, eval or train
    mode."""

    def export(path):
        entry = families.FAMILIES[family]
        module, example = entry.build(), entry.example()
        inputs = [name for name in entry.data(0, 2) if name not in ("labels", "target")]
        if exporter == "scripted":
            module = torch.jit.script(module)
        if exporter in ("torchscript", "scripted"):
            options = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False} if training else {}
            axes = {name: {0: "batch"} for name in inputs + [entry.output]}
            export_torchscript(module, example, path, inputs, [entry.output], opset, axes, **options)
        else:
            batch = torch.export.Dim("batch")
            shapes = tuple({0: batch} for _ in inputs)
            if isinstance(module, families.Plain):
                shapes = (shapes,)  # *inputs is one argument
            options = {} if opset is None else {"opset_version": opset}
            torch.onnx.export(module, example, str(path), dynamo=True, input_names=inputs, output_names=[entry.output],
                              dynamic_shapes=shapes, external_data=False, verbose=False, **options)
            strip_traces(path)

    return export


def strip_traces(path):
    """Without the Python lines, which are most of a tiny file."""
    model = onnx.load(str(path))
    for node in model.graph.node:
        kept = [e for e in node.metadata_props if e.key in ("namespace", "pkg.torch.onnx.name_scopes")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, str(path))


def merge_decoders(without_past, with_past):
    """One graph of two exports of a decoder, as Optimum merges them: If(use_cache_branch) around both bodies, which keep
    their names, the weights outside of it, each once."""
    stored, kept, inputs = {}, [], {}

    def branch(name, graph):
        names = {}
        for tensor in graph.initializer:
            key = (tensor.data_type, tuple(tensor.dims), onnx.numpy_helper.to_array(tensor).tobytes())
            if key not in stored:
                stored[key] = tensor.name + ("_merged" if tensor.name in stored.values() else "")
                kept.append(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), stored[key]))
            names[tensor.name] = stored[key]
        inputs.update({i.name: i for i in graph.input})
        for node in graph.node:
            node.input[:] = [names.get(value, value) for value in node.input]
        return onnx.helper.make_graph(graph.node, name, [], graph.output)

    bodies = branch("with_past", with_past.graph), branch("no_past", without_past.graph)
    outputs = [output.name for output in without_past.graph.output]
    choose = onnx.helper.make_node("If", ["use_cache_branch"], outputs, name="optimum::if", then_branch=bodies[0],
                                   else_branch=bodies[1])
    flag = onnx.helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    graph = onnx.helper.make_graph([choose], "merged", list(inputs.values()) + [flag], without_past.graph.output, kept)
    return onnx.helper.make_model(graph, opset_imports=without_past.opset_import, ir_version=without_past.ir_version)


def export_merged_decoder(path):
    trained = families.merged_decoder()
    decoder = families.CachedDecoder().eval()
    decoder.load_state_dict(trained.state_dict())
    example, names = families.causal_example()[0], ["logits", "present_key", "present_value"]
    axes = {name: {0: "batch", 2: "total"} for name in names[1:]} | {"input_ids": {0: "batch", 1: "sequence"},
                                                                    "logits": {0: "batch", 1: "sequence"}}
    past = {name: {0: "batch", 2: "past"} for name in ("past_key", "past_value")}
    parts = []
    for inputs, values in ((["input_ids"], (example,)),
                           (["input_ids", *past], (example[:, :1], torch.zeros(2, 3, 5, 8), torch.zeros(2, 3, 5, 8)))):
        part = path.with_suffix(".part")
        export_torchscript(decoder, values, part, inputs, names, 17, axes | past)
        parts.append(onnx.load(str(part)))
        part.unlink()
    onnx.save(merge_decoders(*parts), str(path))


# Per file: the module with its initial weights, and the function that writes the file.
MODELS = {
    "gpt2_torchscript": (build_gpt2, export_gpt2_torchscript),
    "gpt2_dynamo": (build_gpt2, export_gpt2_dynamo),
    "gpt2_external": (build_gpt2, export_gpt2_external),
    "mlp": (lambda: seeded(Mlp, 2), export_mlp),
    "mlp_classifier": (lambda: seeded(MlpClassifier, 3), export_mlp_classifier),
    "mlp_own_loss": (lambda: seeded(MlpOwnLoss, 4), export_mlp_own_loss),
    "char_gpt": (lambda: seeded(CharGpt, 5), export_char_gpt),
}
NEWEST = 25  # opset that the dynamo exporter can be asked for
FAMILY_FILES = {}  # file -> family; record.py seeds the data by the place: append
for file, family, *how in (
        ("llama_torchscript", "llama", "torchscript", 17),
        ("llama_dynamo", "llama", "dynamo", 23),
        ("bert_torchscript", "bert", "torchscript", 13),
        ("bert_dynamo", "bert", "dynamo"),
        ("roberta_torchscript", "roberta", "torchscript", 14),
        ("t5_torchscript", "t5", "torchscript", 16),
        ("t5_dynamo", "t5", "dynamo", 20),
        ("moe_dense_torchscript", "moe_dense", "torchscript", 17),
        ("moe_dense_dynamo", "moe_dense", "dynamo"),
        ("lstm_tagger_torchscript", "lstm_tagger", "torchscript", 15, True),
        ("vit_torchscript", "vit", "torchscript", 17),
        ("vit_dynamo", "vit", "dynamo", 22),
        ("swin_torchscript", "swin", "torchscript", 18),
        ("swin_dynamo", "swin", "dynamo"),
        ("resnet_torchscript", "resnet", "torchscript", 17, True),
        ("resnet_dynamo", "resnet", "dynamo"),
        ("resnet_folded", "resnet_folded", "torchscript", 17),
        ("convnext_torchscript", "convnext", "torchscript", 17),
        ("convnext_dynamo", "convnext", "dynamo", 21),
        ("mobilenet_torchscript", "mobilenet", "torchscript", 14, True),
        ("mobilenet_dynamo", "mobilenet_eval", "dynamo"),
        ("unet_torchscript", "unet", "torchscript", 17),
        ("unet_dynamo", "unet", "dynamo", 21),
        ("whisper_torchscript", "whisper", "torchscript", 17),
        ("whisper_dynamo", "whisper", "dynamo"),
        ("roberta_dynamo", "roberta", "dynamo", NEWEST),
        ("moe_capacity_torchscript", "moe_capacity", "torchscript", 17),
        ("moe_capacity_dynamo", "moe_capacity", "dynamo", NEWEST),
        ("merged_decoder", "merged_decoder", None),
        ("efficientnet_torchscript", "efficientnet", "torchscript", 16, True),
        ("rnn_scripted", "scripted_rnn", "scripted", 17)):
    FAMILY_FILES[file] = family
    MODELS[file] = (families.FAMILIES[family].build,
                    export_merged_decoder if file == "merged_decoder" else export_family(family, *how))


def build(name):
    return MODELS[name][0]()


def main():
    parser = argparse.ArgumentParser(description="writes the ONNX models of this folder")
    parser.add_argument("--only", metavar="NAME", choices=MODELS, help="one of " + ", ".join(MODELS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name, (_, export) in MODELS.items():
        if arguments.only in (None, name):
            path = FOLDER / f"{name}.onnx"
            export(path)
            onnx.checker.check_model(str(path))
            print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
