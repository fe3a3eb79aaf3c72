"""Exports a torch module for training with zerocc, and brings trained weights back. One file: copy it beside your code.

    import zerocc_export as zerocc

    zerocc.export(model, {"input_ids": ids}, "model.onnx")                        # logits; zerocc adds the loss
    zerocc.export(model, {"x": x}, "model.onnx", loss=mse, labels={"target": y})  # or with a loss of yours
    zerocc.reference(model, loss, data, "model.ref.npz", steps=20, batch=4)       # what PyTorch makes of it

    zerocc compile model.onnx -o model.zplan --ranks 8 --stage 3 --micro-batch 1 --loss cross-entropy:logits
    zero-run model.zplan --model model.onnx --data … --steps 20 --check-against model.ref.npz --export trained.safetensors

    zerocc.load(model, "trained.safetensors")

    zerocc.from_deepspeed("checkpoints/global_step500_universal", "folder")       # then: zero-run … --weights folder

Exporters are made for inference, and change what is trained: they merge parameters of equal values, fold batch norm
into convolutions, leave out dropout, add key-value caches, split tied weights, and forget names. `export` asks them not
to, checks that they did not, and names every initializer as the module's state dict does.

Needs torch and onnx; `reference` needs numpy. The TorchScript exporter is used, as it has a training mode.
"""

import contextlib
import copy
import json
import os
import pathlib
import tempfile
import warnings

import onnx
import onnx.numpy_helper
import torch

NAMES_KEY = "zerocc.state_dict"  # metadata of the model: JSON, initializer -> its names in the state dict
WEIGHTLESS_KEY = "zerocc.weightless"
OPSET = 17


class _Traced(torch.nn.Module):
    """Inputs by position, one output or a loss; without caches."""

    def __init__(self, module, inputs, output, loss):
        super().__init__()
        self.module, self.inputs, self.output, self.loss = module, list(inputs), output, loss

    def forward(self, *tensors):
        result = self.module(**dict(zip(self.inputs, tensors)))
        if self.output is not None:
            result = result[self.output] if isinstance(result, dict) else getattr(result, self.output)
        if not isinstance(result, torch.Tensor) and self.loss is None:
            raise TypeError(f"the module returns {type(result).__name__}: say which part of it with output=NAME")
        return result if self.loss is None else self.loss(result, *tensors[len(self.inputs):])


@contextlib.contextmanager
def _prepared(module, train):
    """The module without caches and in the wanted mode, and as it was afterwards: tracing moves running statistics."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    modes = [(m, m.training) for m in module.modules()]
    configs = {id(m.config): m.config for m in module.modules() if getattr(getattr(m, "config", None), "use_cache", False)}
    for config in configs.values():
        config.use_cache = False
    module.train(train)
    try:
        yield
    finally:
        for config in configs.values():
            config.use_cache = True
        for m, mode in modes:
            m.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def export(module, inputs, path, *, output=None, output_name="logits", loss=None, labels=None, train=True, opset=OPSET,
           dynamic_batch=True, weightless=False):
    """Writes `path`, a training graph of `module`, and returns the names of its parameters.

    inputs      name -> example tensor, first dim the batch; given to the module by name, names of the file's inputs
    output      the part of the module's result to train on, e.g. "logits"; needed where it is no tensor
    loss        function (result, *labels) -> scalar; without one the file has the result, called `output_name`, and
                `zerocc compile --loss cross-entropy:NAME` or `mse:NAME` adds the loss (and label smoothing)
    labels      name -> example tensor, for `loss`
    train       in train mode: dropout stays in, batch norm uses the batch's statistics. False: neither
    weightless  shapes only, to plan with: train it with `zero-run --init`

    Raises ValueError when the exporter has changed what is trained all the same, and when a part of the module has no
    meaning in ONNX (a padding row of an embedding, which gets no gradient).
    """
    labels = labels or {}
    path = pathlib.Path(path)
    if (loss is None) != (not labels):
        raise ValueError("loss and labels belong together")
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.Embedding) and part.padding_idx is not None:
            raise ValueError(f"{name}: row {part.padding_idx} is a padding row, which gets no gradient in PyTorch; ONNX has "
                             "no such row. Set padding_idx to None where the ids never hold it, or mask its labels")
    example = {**inputs, **labels}
    result = "loss" if loss is not None else output_name
    axes = {name: {0: "batch"} for name in (*example, *(() if loss is not None else (result,)))} if dynamic_batch else None
    traced = _Traced(module, inputs, output, loss)
    with _prepared(traced, train), tempfile.TemporaryDirectory(dir=path.parent or ".") as folder, \
            warnings.catch_warnings():
        written = pathlib.Path(folder) / "model.onnx"
        mode = torch.onnx.TrainingMode.TRAINING  # EVAL merges equal parameters and folds batch norm
        if not train:
            mode = torch.onnx.TrainingMode.PRESERVE
        warnings.simplefilter("ignore", DeprecationWarning)  # of the exporter's own parts
        torch.onnx.export(traced, tuple(example.values()), str(written), dynamo=False, opset_version=opset, training=mode,
                          do_constant_folding=False, input_names=list(example), output_names=[result], dynamic_axes=axes)
        model = onnx.load(str(written))
    names = _name(model, module)
    buffers = dict(module.named_buffers())
    for tensor in model.graph.initializer:
        if tensor.name in buffers:  # as before tracing
            tensor.CopyFrom(onnx.numpy_helper.from_array(buffers[tensor.name].numpy(), tensor.name))
    if weightless:
        _remove_weights(model, names)
    beside = path.with_name(path.name + ".part")
    large = model.ByteSize() > 1 << 30
    if large:
        data = path.name + ".data"
        onnx.save(model, str(beside), save_as_external_data=True, location=data)
    else:
        beside.write_bytes(model.SerializeToString(deterministic=True))
    os.replace(beside, path)
    return names


def _name(model, module):
    """Names the initializers as the state dict does; every parameter has to be there once."""
    wanted = {}
    for name, tensor in module.named_parameters(remove_duplicate=False):
        wanted.setdefault(tensor, []).append(name)
    renamed = {t.name: t.name.removeprefix("module.") for t in model.graph.initializer}
    for node in _nodes(model.graph):
        for i, name in enumerate(node.input):
            node.input[i] = renamed.get(name, name)
        for i, name in enumerate(node.output):
            node.output[i] = renamed.get(name, name)
    for tensor in model.graph.initializer:
        tensor.name = renamed[tensor.name]
    there, used = {t.name: list(t.dims) for t in model.graph.initializer}, set()
    for node in _nodes(model.graph):
        used.update(node.input)
    found = {}
    for tensor, names in wanted.items():
        kept = [name for name in names if there.get(name) == list(tensor.shape) and name in used]
        if len(kept) != 1:
            raise ValueError(f"{names[0]}: the exporter has written it {len(kept)} times, not once"
                             + ("; does the forward pass use it?" if not kept else ""))
        found[kept[0]] = names
    entry = model.metadata_props.add()
    entry.key, entry.value = NAMES_KEY, json.dumps(found, sort_keys=True)
    return found


def _nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else list(attribute.graphs)):
                yield from _nodes(inner)


def _remove_weights(model, names):
    """Parameters become references into a file that is not there, as `zerocc generate` writes them."""
    entry = model.metadata_props.add()
    entry.key, entry.value = WEIGHTLESS_KEY, "true"
    for tensor in model.graph.initializer:
        if tensor.name not in names:
            continue
        size = onnx.numpy_helper.to_array(tensor).nbytes
        for field in ("raw_data", "float_data", "int32_data"):  # 16-bit floats are in int32_data
            tensor.ClearField(field)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights.data"), ("length", str(size))):
            item = tensor.external_data.add()
            item.key, item.value = key, value


def adamw(parameters, lr=1e-3, weight_decay=0.1):
    """As `--optimizer adamw --lr 1e-3 --weight-decay 0.1`: vectors do not decay."""
    parameters = list(parameters)
    return torch.optim.AdamW([{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
                              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}], lr=lr, foreach=False)


def reference(module, loss, data, path, *, steps, batch, optimizer=adamw, train=True):
    """Trains a copy of the module in PyTorch and writes what `zero-run --check-against` compares with.

    loss        function (module, batch) -> scalar, with batch: name -> tensor
    data        name -> array of at least steps * batch samples; step s takes samples s * batch and on
    optimizer   function (parameters) -> torch optimizer

    The file has loss and grad_norm of every step, grad/NAME of the first, weight/NAME after the third (fewer steps: the
    last; then say `--reference-weights-step`), and spread/NAME, how far f32 and f64 training are apart there. Returns
    the losses. Dropout cannot be compared: its random numbers are PyTorch's. Raises ValueError if any is active.
    """
    import numpy

    if train and any(isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.p > 0 for m in module.modules()):
        raise ValueError("the module has active dropout, whose random numbers differ: set p to 0, or train=False")
    short = [name for name, array in data.items() if len(array) < steps * batch]
    if short:
        raise ValueError(f"{short[0]}: {len(data[short[0]])} samples, {steps} steps of {batch} need {steps * batch}")

    def run(dtype):
        trained = copy.deepcopy(module).to(dtype).train(train)
        parameters = {name: p for name, p in trained.named_parameters() if p.requires_grad}
        stepper, record = optimizer(parameters.values()), {"loss": numpy.zeros(steps), "grad_norm": numpy.zeros(steps)}
        for step in range(steps):
            part = {name: torch.as_tensor(array[step * batch:(step + 1) * batch]) for name, array in data.items()}
            part = {name: t.to(dtype) if t.is_floating_point() else t for name, t in part.items()}
            stepper.zero_grad()
            value = loss(trained, part)
            value.backward()
            norms = [p.grad.norm() for p in parameters.values() if p.grad is not None]
            record["loss"][step], record["grad_norm"][step] = value.item(), torch.stack(norms).norm().item()
            if step == 0:
                record.update({f"grad/{n}": p.grad.numpy().copy() for n, p in parameters.items() if p.grad is not None})
            stepper.step()
            if step == min(2, steps - 1):
                record.update({f"weight/{n}": p.detach().numpy().copy() for n, p in parameters.items()})
        return record

    with _prepared(module, train):
        result, exact = run(torch.float32), run(torch.float64)
    for key in [key for key in result if key.startswith("weight/")]:
        result[key.replace("weight/", "spread/", 1)] = numpy.abs(result[key] - exact[key]).max(initial=0)
    path = pathlib.Path(path)
    with open(path.with_name(path.name + ".part"), "wb") as file:
        numpy.savez_compressed(file, **result)
    os.replace(path.with_name(path.name + ".part"), path)
    return result["loss"]


_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
           "I32": torch.int32}


def read_safetensors(path):
    """name -> tensor of a .safetensors file."""
    raw = bytearray(pathlib.Path(path).read_bytes())
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        count = (end - begin) // _DTYPES[entry["dtype"]].itemsize
        flat = torch.frombuffer(raw, dtype=_DTYPES[entry["dtype"]], count=count, offset=begin) if count else torch.empty(0)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def load(module, path):
    """Copies trained weights and running statistics into the module.

    Nothing is copied, and ValueError raised, when a parameter is missing, a name is unknown or a shape differs.
    """
    tensors = read_safetensors(path)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    places = {**parameters, **dict(module.named_buffers(remove_duplicate=False))}
    unknown = sorted(set(tensors) - set(places))
    given = {id(places[name]) for name in tensors if name in places}
    missing = sorted(name for name, p in parameters.items() if id(p) not in given)
    wrong = [f"{name}: {list(tensor.shape)} in the file, {list(places[name].shape)} in the module"
             for name, tensor in tensors.items() if name in places and tensor.shape != places[name].shape]
    if unknown or missing or wrong:
        raise ValueError(f"{path} does not belong to this module: " +
                         "; ".join(([f"unknown: {', '.join(unknown)}"] if unknown else []) +
                                   ([f"missing: {', '.join(missing)}"] if missing else []) + wrong))
    with torch.no_grad():
        for name, tensor in tensors.items():
            places[name].copy_(tensor)


# --- from DeepSpeed ----------------------------------------------------------------------------------------------------

_STATES = {"exp_avg": "moment1", "exp_avg_sq": "moment2"}


def from_deepspeed(source, folder):
    """Converts a DeepSpeed checkpoint into safetensors files for `zero-run --weights FOLDER`; returns the parameters' names.

    source      a universal checkpoint (ds_to_universal.py: a folder with zero/NAME/fp32.pt, exp_avg.pt, exp_avg_sq.pt), whose
                optimizer states and step come along, or consolidated weights (zero_to_fp32.py: pytorch_model.bin, alone
                or with an index of several in a folder)
    folder      gets model.safetensors and, from a universal checkpoint, optimizer.safetensors

    Pickles are read with torch's loader of plain tensors, which runs no code. Parts of the ranks as DeepSpeed saves them
    (mp_rank_…, bf16_zero_pp_rank_…) are refused: make them whole with zero_to_fp32.py or ds_to_universal.py first.
    """
    source, folder = pathlib.Path(source), pathlib.Path(folder)
    weights, states, updates = _universal(source) if (source / "zero").is_dir() else (_consolidated(source), {}, None)
    if not weights:
        raise ValueError(f"{source}: holds no parameters")
    folder.mkdir(parents=True, exist_ok=True)
    _write_safetensors(folder / "model.safetensors", weights, {"format": "pt"})
    (folder / "optimizer.safetensors").unlink(missing_ok=True)
    if states:
        _write_safetensors(folder / "optimizer.safetensors", states, {"updates": str(updates)})
    return sorted(weights)


def _plain(path):
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:  # of a format that cannot be mapped
        return torch.load(path, map_location="cpu", weights_only=True)


def _consolidated(source):
    """name -> where it is, as for `_write_safetensors`."""
    if source.is_dir():
        index = source / "pytorch_model.bin.index.json"
        if index.is_file():
            files = sorted({source / name for name in json.loads(index.read_text())["weight_map"].values()})
        else:
            files = [source / "pytorch_model.bin"]
        if missing := [str(path) for path in files if not path.is_file()]:
            raise ValueError(f"{source}: is neither a universal checkpoint nor consolidated weights; missing: " +
                             ", ".join(missing) + "; zero_to_fp32.py and ds_to_universal.py make them of DeepSpeed's parts")
    else:
        files = [source]
    found, seen = {}, {}
    for path in files:
        for name, tensor in _plain(path).items():
            if not isinstance(tensor, torch.Tensor):
                raise ValueError(f"{path}: \"{name}\" is no tensor; is it a consolidated checkpoint?")
            place = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
            if tensor.numel() and place in seen and seen[place] != name:
                continue  # tied: once, under its first name
            seen[place] = name
            found[name] = tensor
    return found


def _universal(source):
    """Weights, states and the number of steps of a universal checkpoint."""
    weights, states, steps = {}, {}, set()
    for place in sorted(path for path in (source / "zero").iterdir() if path.is_dir()):
        for path in sorted(place.glob("*.pt")):
            content = _plain(path)
            if path.stem == "step":
                steps.add(int(content))
                continue
            tensor = content["param"] if isinstance(content, dict) else content
            if path.stem == "fp32":
                weights[place.name] = tensor
            elif path.stem in _STATES:
                states[f"{_STATES[path.stem]}/{place.name}"] = tensor
            else:
                raise ValueError(f"{path}: a state that zerocc does not know; it knows {', '.join(_STATES)}")
        if place.name not in weights:
            raise ValueError(f"{place}: has no fp32.pt: the checkpoint is not whole")
    for state in {name.split("/")[0] for name in states}:
        if missing := [name for name in weights if f"{state}/{name}" not in states]:
            raise ValueError(f"{source}: no {state} of {', '.join(missing[:5])}: the checkpoint is not whole")
    if states and len(steps) != 1:
        raise ValueError(f"{source}: its parameters were updated {sorted(steps) or 'an unknown number of'} times, "
                         "one number is needed")
    return weights, states, next(iter(steps), None)


def _write_safetensors(path, tensors, metadata):
    """One tensor at a time, beside its place, then renamed."""
    types = {dtype: name for name, dtype in _DTYPES.items()}
    header, at = {"__metadata__": metadata}, 0
    for name in sorted(tensors):
        tensor = tensors[name]
        if tensor.dtype not in types:
            raise ValueError(f"\"{name}\" is of {tensor.dtype}")
        size = tensor.numel() * tensor.dtype.itemsize
        header[name] = {"dtype": types[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    beside = path.with_name(path.name + ".partial")
    with open(beside, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            file.write(tensors[name].detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
