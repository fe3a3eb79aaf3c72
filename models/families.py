"""The model families of this folder, each in a tiny size: modules with a plain forward, example inputs and data."""

import collections
from typing import List

import numpy
import torch
from torch import nn
from torch.nn import functional

# build: the module with its initial weights; example: inputs for tracing, batch 2; data(seed): named arrays for a number
# of samples; loss: kind of loss in record.py; output: name of the ONNX output.
Family = collections.namedtuple("Family", "build example data loss output")


class Plain(nn.Module):
    """A Hugging Face model that takes tensors by position and gives one."""

    def __init__(self, model, *names, result="logits", mask=None, **fixed):
        super().__init__()
        self.model, self.names, self.result, self.mask, self.fixed = model, names, result, mask, fixed

    def forward(self, *inputs):
        arguments = dict(zip(self.names, inputs), **self.fixed)
        if self.mask and torch.jit.is_tracing():
            # Without a mask the library looks for packed sequences with torch.diff, which the TorchScript exporter does
            # not know. A mask of ones means the same.
            arguments[self.mask[0]] = torch.ones_like(inputs[self.mask[1]])
        return getattr(self.model(**arguments), self.result)


def scrambled(module, seed):
    """Biases and scales away from 0 and 1, so that exporters do not take them for one tensor, and a mistake shows."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim < 2:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
    return module


def tokens(seed, count, length, vocabulary):
    random = numpy.random.default_rng(seed)
    ids = numpy.empty((count, length + 1), numpy.int64)
    ids[:, 0] = random.integers(vocabulary, size=count)
    for i in range(length):
        surprise = random.random(count) < 0.2
        ids[:, i + 1] = numpy.where(surprise, random.integers(vocabulary, size=count), (3 * ids[:, i] + 5) % vocabulary)
    return ids


def masked_language(seed, count, length=10, vocabulary=40, hidden=3):
    """One in four tokens is hidden and has to be told; other labels do not count."""
    random = numpy.random.default_rng(seed)
    ids = tokens(seed, count, length - 1, vocabulary - 4) + 4
    labels = ids.copy()
    hide = random.random(ids.shape) < 0.25
    hide[:, 0] = True
    ids[hide] = hidden
    labels[~hide] = -100
    return {"input_ids": ids, "labels": labels}


def next_token(seed, count, length=12, vocabulary=32):
    ids = tokens(seed, count, length, vocabulary)
    return {"input_ids": ids[:, :-1].copy(), "labels": ids[:, 1:].copy()}


def images(seed, count, size, classes, channels=3):
    random = numpy.random.default_rng(seed)
    x = random.standard_normal((count, channels, size, size)).astype(numpy.float32)
    return {"pixel_values": x, "labels": random.integers(classes, size=count).astype(numpy.int64)}


def causal_example(length=12):
    return (torch.arange(2 * length).remainder(32).view(2, length),)


def image_example(size, channels=3):
    return (torch.linspace(-1, 1, 2 * channels * size * size).view(2, channels, size, size),)


# --- language --------------------------------------------------------------------------------------------------------


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(21)
    config = LlamaConfig(vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=32, use_cache=False, tie_word_embeddings=False,
                         attn_implementation="eager")
    return scrambled(Plain(LlamaForCausalLM(config), "input_ids", mask=("attention_mask", 0), use_cache=False).eval(), 1)


def bert():
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(22)
    config = BertConfig(vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48,
                        max_position_embeddings=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                        attn_implementation="eager")
    return scrambled(Plain(BertForMaskedLM(config), "input_ids").eval(), 2)


def roberta():
    from transformers import RobertaConfig, RobertaForMaskedLM

    torch.manual_seed(23)
    config = RobertaConfig(vocab_size=40, hidden_size=24, num_hidden_layers=1, num_attention_heads=3,
                           intermediate_size=48, max_position_embeddings=16, hidden_dropout_prob=0.0,
                           attention_probs_dropout_prob=0.0, pad_token_id=1, attn_implementation="eager")
    return scrambled(Plain(RobertaForMaskedLM(config), "input_ids").eval(), 3)


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(24)
    config = T5Config(vocab_size=32, d_model=24, d_kv=8, d_ff=48, num_layers=1, num_heads=3, dropout_rate=0.0,
                      relative_attention_num_buckets=8, relative_attention_max_distance=16, use_cache=False,
                      decoder_start_token_id=0, attn_implementation="eager")
    model = T5ForConditionalGeneration(config).eval()
    return scrambled(Plain(model, "input_ids", "decoder_input_ids", use_cache=False).eval(), 4)


def t5_data(seed, count):
    ids = tokens(seed, count, 20, 32)
    return {"input_ids": ids[:, :12].copy(), "decoder_input_ids": ids[:, 12:20].copy(), "labels": ids[:, 13:21].copy()}


class Expert(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class DenseMoe(nn.Module):
    """Mixtral's block in its dense form: every expert sees every token, the two best by the router count."""

    def __init__(self, vocabulary=32, width=24, inner=32, experts=4, length=12):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, inner) for _ in range(experts))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        h = self.norm(x)
        weights, chosen = torch.topk(torch.softmax(self.router(h), dim=-1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        for i, expert in enumerate(self.experts):
            share = (weights * (chosen == i).to(weights.dtype)).sum(dim=-1, keepdim=True)
            x = x + share * expert(h)
        return self.head(x)


def moe_dense():
    torch.manual_seed(25)
    return scrambled(DenseMoe().eval(), 5)


class CapacityMoe(nn.Module):
    """GShard's block (Lepikhin et al. 2020, Algorithm 1): each expert takes at most `capacity` tokens of a sample, in
    the order of the sequence and the first choices before the second ones; tokens that find no place pass by it. All
    shapes are static: one-hot dispatch and combine tensors [batch, sequence, experts, capacity]."""

    def __init__(self, vocabulary=32, width=24, inner=32, experts=4, capacity=5, length=12):
        super().__init__()
        self.experts, self.capacity = experts, capacity
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) / inner**0.5)
        self.head = nn.Linear(width, vocabulary)

    def one_hot(self, index, count):
        return (index.unsqueeze(-1) == torch.arange(count, device=index.device)).to(torch.float32)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        h = self.norm(x)
        gates = torch.softmax(self.router(h), dim=-1)
        first = self.one_hot(gates.argmax(dim=-1), self.experts)
        second = self.one_hot((gates * (1 - first)).argmax(dim=-1), self.experts)
        places = torch.cumsum(first, dim=1) * first, (torch.cumsum(second, dim=1) + first.sum(dim=1, keepdim=True)) * second
        both = (gates * (first + second)).sum(dim=-1, keepdim=True)
        combine = 0
        for chosen, place in zip((first, second), places):
            share = (gates * chosen).sum(dim=-1, keepdim=True) / both
            seat = self.one_hot(place.sum(dim=-1).to(torch.int64) - 1, self.capacity)  # none beyond the capacity
            combine = combine + (share * chosen).unsqueeze(-1) * seat.unsqueeze(-2)
        dispatch = (combine > 0).to(h.dtype)
        rows = torch.einsum("bsec,bsw->ebcw", dispatch, h)
        rows = torch.einsum("ebcw,ewi->ebci", rows, self.up)
        rows = torch.einsum("ebci,eiw->ebcw", functional.silu(rows), self.down)
        return self.head(x + torch.einsum("bsec,ebcw->bsw", combine, rows))


def moe_capacity():
    torch.manual_seed(26)
    return scrambled(CapacityMoe().eval(), 6)


class CachedDecoder(nn.Module):
    """A decoder layer that takes keys and values of earlier tokens and gives those of all; without `past` none."""

    def __init__(self, vocabulary=32, width=24, heads=3, length=24):
        super().__init__()
        self.heads = heads
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids, past_key=None, past_value=None):
        batch, sequence = input_ids.shape
        begin = 0 if past_key is None else past_key.shape[2]
        positions = torch.arange(begin, begin + sequence, device=input_ids.device)
        x = self.wte(input_ids) + self.wpe(positions)
        q, k, v = (part.view(batch, sequence, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm(x)).chunk(3, dim=2))
        if past_key is not None:
            k, v = torch.cat([past_key, k], dim=2), torch.cat([past_value, v], dim=2)
        seen = torch.arange(begin + sequence, device=input_ids.device)[None, :] <= positions[:, None]
        scores = (q @ k.transpose(2, 3)) * (1.0 / q.shape[-1] ** 0.5)
        y = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1) @ v
        x = x + self.proj(y.transpose(1, 2).reshape(batch, sequence, -1))
        x = x + self.down(functional.gelu(self.up(x)))
        return self.head(x), k, v


class WithoutCache(nn.Module):
    """What the training of a CachedDecoder computes; its parameters keep their names."""

    def __init__(self, decoder):
        super().__init__()
        for name, child in decoder.named_children():
            self.add_module(name, child)
        self.heads = decoder.heads

    def forward(self, input_ids):
        return CachedDecoder.forward(self, input_ids)[0]


def merged_decoder():
    torch.manual_seed(28)
    return scrambled(WithoutCache(CachedDecoder()).eval(), 7)


class LstmTagger(nn.Module):
    def __init__(self, vocabulary=32, width=12, hidden=10, tags=6):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(2 * hidden, tags)

    def forward(self, input_ids):
        return self.tags(self.lstm(self.embedding(input_ids))[0])


def lstm_tagger():
    torch.manual_seed(27)
    return LstmTagger().eval()


class ScriptedRnn(nn.Module):
    """Its own recurrence, a Python loop over a list with a branch inside; torch.jit.script keeps all three."""

    def __init__(self, vocabulary=32, width=12, hidden=10, tags=6):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.seen = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.recurrent = nn.Linear(hidden, hidden)
        self.tags = nn.Linear(hidden, tags)
        self.hidden = hidden

    def forward(self, input_ids):
        x = self.seen(self.embedding(input_ids))
        h = torch.zeros(x.size(0), self.hidden, dtype=x.dtype)
        rows: List[torch.Tensor] = []
        for t in range(x.size(1)):
            h = torch.tanh(x[:, t] + self.recurrent(self.norm(h)))
            if t % 3 == 0:
                rows.append(h)
            else:
                rows.append(h + 0.5 * rows[t - 1])
        return self.tags(torch.stack(rows, 1))


def scripted_rnn():
    torch.manual_seed(28)
    return scrambled(ScriptedRnn().eval(), 8)


def tagging(seed, count, length=9):
    ids = tokens(seed, count, length, 32)[:, :length].copy()
    return {"input_ids": ids, "labels": (ids * 5 + numpy.roll(ids, 1, axis=1)) % 6}


# --- vision ----------------------------------------------------------------------------------------------------------


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(31)
    config = ViTConfig(image_size=16, patch_size=4, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                       intermediate_size=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=5,
                       attn_implementation="eager")
    return scrambled(Plain(ViTForImageClassification(config), "pixel_values").eval(), 11)


def swin():
    from transformers import SwinConfig, SwinForImageClassification

    torch.manual_seed(32)
    config = SwinConfig(image_size=16, patch_size=2, embed_dim=12, depths=[2, 1], num_heads=[2, 3], window_size=4,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, drop_path_rate=0.0, num_labels=5,
                        attn_implementation="eager")
    return scrambled(Plain(SwinForImageClassification(config), "pixel_values").eval(), 12)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 2 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(2 * width)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, 2 * width, 1, stride=stride, bias=False),
                                      nn.BatchNorm2d(2 * width))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A bottleneck ResNet."""

    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, stride=2, padding=2, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.block1 = Bottleneck(8, 8, 1)
        self.block2 = Bottleneck(16, 12, 2)
        self.head = nn.Linear(24, classes)

    def forward(self, pixel_values):
        x = self.pool(torch.relu(self.bn(self.stem(pixel_values))))
        x = self.block2(self.block1(x))
        return self.head(x.mean(dim=(2, 3)))


def statistics(module, seed, example):
    """Running statistics of a network that has seen data."""
    random = torch.Generator().manual_seed(seed)
    module.train()
    with torch.no_grad():
        for _ in range(20):
            module(torch.randn(8, *example.shape[1:], generator=random))
    return module


def resnet(train):
    torch.manual_seed(233)
    module = statistics(scrambled(ResNet(), 13), 13, image_example(24)[0])
    return module.train(train)


def convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification

    torch.manual_seed(34)
    config = ConvNextConfig(patch_size=4, num_stages=2, hidden_sizes=[8, 16], depths=[1, 1], drop_path_rate=0.0,
                            num_labels=5, layer_scale_init_value=0.5, image_size=32)
    return scrambled(Plain(ConvNextForImageClassification(config), "pixel_values").eval(), 14)


class InvertedResidual(nn.Module):
    """EfficientNet's block: expand, depthwise, squeeze and excite, project."""

    def __init__(self, inputs, outputs, stride, expand=3):
        super().__init__()
        width = inputs * expand
        self.residual = stride == 1 and inputs == outputs
        self.expand = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.depthwise = nn.Conv2d(width, width, 3, stride=stride, padding=1, groups=width, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.squeeze = nn.Conv2d(width, 4, 1)
        self.excite = nn.Conv2d(4, width, 1)
        self.project = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = functional.silu(self.bn1(self.expand(x)))
        y = functional.hardswish(self.bn2(self.depthwise(y)))
        s = torch.sigmoid(self.excite(functional.relu6(self.squeeze(functional.adaptive_avg_pool2d(y, 1)))))
        y = self.bn3(self.project(y * s))
        return x + y if self.residual else y


class MobileNet(nn.Module):
    """Blocks of MobileNetV3 and EfficientNet."""

    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(InvertedResidual(6, 6, 1), InvertedResidual(6, 10, 2))
        self.head = nn.Linear(10, classes)

    def forward(self, pixel_values):
        x = self.blocks(functional.hardswish(self.stem(pixel_values)))
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


def mobilenet(train):
    torch.manual_seed(35)
    return statistics(scrambled(MobileNet(), 15), 15, image_example(16)[0]).train(train)


class MbConv(nn.Module):
    """EfficientNet's block (Tan & Le 2019): expand, depthwise, squeeze and excite, project, all with SiLU."""

    def __init__(self, inputs, outputs, kernel, stride, expand):
        super().__init__()
        width = inputs * expand
        self.residual = stride == 1 and inputs == outputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width, eps=1e-3, momentum=0.01),
                                    nn.SiLU()) if expand > 1 else nn.Identity()
        self.depthwise = nn.Sequential(
            nn.Conv2d(width, width, kernel, stride, kernel // 2, groups=width, bias=False),
            nn.BatchNorm2d(width, eps=1e-3, momentum=0.01), nn.SiLU())
        self.squeeze = nn.Conv2d(width, max(1, inputs // 4), 1)
        self.excite = nn.Conv2d(max(1, inputs // 4), width, 1)
        self.project = nn.Sequential(nn.Conv2d(width, outputs, 1, bias=False),
                                     nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01))

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        s = torch.sigmoid(self.excite(functional.silu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        y = self.project(y * s)
        return x + y if self.residual else y


class EfficientNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6, eps=1e-3, momentum=0.01),
                                  nn.SiLU())
        self.blocks = nn.Sequential(MbConv(6, 4, 3, 1, 1), MbConv(4, 8, 5, 2, 4), MbConv(8, 8, 3, 1, 4))
        self.top = nn.Sequential(nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24, eps=1e-3, momentum=0.01), nn.SiLU())
        self.classifier = nn.Linear(24, classes)

    def forward(self, pixel_values):
        return self.classifier(self.top(self.blocks(self.stem(pixel_values))).mean((2, 3)))


def efficientnet():
    torch.manual_seed(36)
    return statistics(scrambled(EfficientNet(), 16), 16, image_example(16)[0]).train()


class UnetBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm = nn.GroupNorm(2, inputs)
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)

    def forward(self, x):
        return self.conv(functional.silu(self.norm(x)))


class Unet(nn.Module):
    """A denoiser's UNet: group norm, SiLU, nearest upsampling, skip connections, a transposed convolution at the end."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.down1 = UnetBlock(8, 8)
        self.shrink = nn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.middle = UnetBlock(12, 12)
        self.up1 = UnetBlock(20, 8)
        self.leave = nn.ConvTranspose2d(8, 3, 2, stride=2)
        self.fold = nn.AvgPool2d(2)

    def forward(self, pixel_values):
        x = self.enter(pixel_values)
        skip = self.down1(x) + x
        x = self.middle(self.shrink(skip))
        x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
        x = self.up1(torch.cat([x, skip], dim=1))
        return self.leave(self.fold(x))


def unet():
    torch.manual_seed(36)
    return scrambled(Unet().eval(), 16)


def denoising(seed, count, size=8):
    random = numpy.random.default_rng(seed)
    clean = numpy.cumsum(random.standard_normal((count, 3, size, size)), axis=3).astype(numpy.float32) * 0.3
    return {"pixel_values": clean + random.standard_normal(clean.shape).astype(numpy.float32) * 0.5, "target": clean}


# --- speech ----------------------------------------------------------------------------------------------------------


def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(41)
    config = WhisperConfig(vocab_size=32, num_mel_bins=6, encoder_layers=1, encoder_attention_heads=2, decoder_layers=1,
                           decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, d_model=16, dropout=0.0,
                           max_source_positions=12, max_target_positions=12, use_cache=False, pad_token_id=0,
                           bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=[],
                           begin_suppress_tokens=[], attn_implementation="eager")
    model = WhisperForConditionalGeneration(config).eval()
    # A row without gradient from its lookups, which ONNX's Gather does not know.
    model.model.decoder.embed_tokens.padding_idx = None
    return scrambled(Plain(model, "input_features", "decoder_input_ids", mask=("decoder_attention_mask", 1), use_cache=False).eval(), 17)


def speech(seed, count):
    random = numpy.random.default_rng(seed)
    ids = tokens(seed, count, 8, 32)
    features = random.standard_normal((count, 6, 24)).astype(numpy.float32)
    return {"input_features": features, "decoder_input_ids": ids[:, :-1].copy(), "labels": ids[:, 1:].copy()}


T5_EXAMPLE = (torch.arange(24).remainder(32).view(2, 12), torch.arange(16).remainder(32).view(2, 8))
WHISPER_EXAMPLE = (torch.linspace(-1, 1, 2 * 6 * 24).view(2, 6, 24), torch.arange(16).remainder(32).view(2, 8))

FAMILIES = {
    "llama": Family(llama, causal_example, next_token, "cross_entropy", "logits"),
    "bert": Family(bert, lambda: (torch.arange(20).remainder(40).view(2, 10),), masked_language, "cross_entropy", "logits"),
    "roberta": Family(roberta, lambda: (torch.arange(20).remainder(36).view(2, 10) + 4,), masked_language, "cross_entropy",
                      "logits"),
    "t5": Family(t5, lambda: T5_EXAMPLE, t5_data, "cross_entropy", "logits"),
    "moe_dense": Family(moe_dense, causal_example, next_token, "cross_entropy", "logits"),
    "moe_capacity": Family(moe_capacity, causal_example, next_token, "cross_entropy", "logits"),
    "merged_decoder": Family(merged_decoder, causal_example, next_token, "cross_entropy", "logits"),
    "lstm_tagger": Family(lstm_tagger, lambda: (torch.arange(18).remainder(32).view(2, 9),), tagging, "cross_entropy",
                          "logits"),
    "scripted_rnn": Family(scripted_rnn, lambda: (torch.arange(18).remainder(32).view(2, 9),), tagging, "cross_entropy",
                           "logits"),
    "vit": Family(vit, lambda: image_example(16), lambda s, n: images(s, n, 16, 5), "cross_entropy", "logits"),
    "swin": Family(swin, lambda: image_example(16), lambda s, n: images(s, n, 16, 5), "cross_entropy", "logits"),
    "resnet": Family(lambda: resnet(True), lambda: image_example(24), lambda s, n: images(s, n, 24, 5), "cross_entropy",
                     "logits"),
    "resnet_folded": Family(lambda: resnet(False), lambda: image_example(24), lambda s, n: images(s, n, 24, 5),
                            "cross_entropy", "logits"),
    "convnext": Family(convnext, lambda: image_example(32), lambda s, n: images(s, n, 32, 5), "cross_entropy", "logits"),
    "mobilenet": Family(lambda: mobilenet(True), lambda: image_example(16), lambda s, n: images(s, n, 16, 5),
                        "cross_entropy", "logits"),
    "mobilenet_eval": Family(lambda: mobilenet(False), lambda: image_example(16), lambda s, n: images(s, n, 16, 5),
                             "cross_entropy", "logits"),
    "efficientnet": Family(efficientnet, lambda: image_example(16), lambda s, n: images(s, n, 16, 5), "cross_entropy",
                           "logits"),
    "unet": Family(unet, lambda: image_example(8), denoising, "mean_squared_error", "image"),
    "whisper": Family(whisper, lambda: WHISPER_EXAMPLE, speech, "cross_entropy", "logits"),
}
