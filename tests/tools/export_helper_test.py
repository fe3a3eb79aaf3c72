#!/usr/bin/env python3
"""models/zerocc_export.py with both programs: export, compile, train beside PyTorch, load back.

    export_helper_test.py BIN MODELS
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import onnx
import onnx.numpy_helper
import torch
from torch import nn
from torch.nn import functional

BIN, MODELS = pathlib.Path(sys.argv.pop(1)), pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(MODELS))
import zerocc_export  # noqa: E402


class Tied(nn.Module):
    """A language model with tied tables, equal norm scales, and a buffer of its own."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(24, 12), nn.Linear(12, 24, bias=False)
        self.norm1, self.norm2, self.inner = nn.LayerNorm(12), nn.LayerNorm(12), nn.Linear(12, 12)
        self.head.weight = self.table.weight

    def forward(self, input_ids):
        x = self.table(input_ids)
        return self.head(self.norm2(x + torch.tanh(self.inner(self.norm1(x)))))


class Normalized(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.out = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.bn(self.conv(x))).mean(dim=(2, 3)))


def program(name, *arguments):
    return subprocess.run([BIN / name, *map(str, arguments)], capture_output=True, text=True)


class Helper(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        torch.manual_seed(1)

    def train(self, flags, steps=5):
        compiled = program("zerocc", "compile", self.folder / "m.onnx", "-o", self.folder / "m.zplan", "--lr", "1e-3",
                           "--weight-decay", "0.1", *flags)
        self.assertEqual(compiled.returncode, 0, compiled.stderr)
        result = program("zero-run", self.folder / "m.zplan", "--model", self.folder / "m.onnx", "--data",
                         self.folder / "d.npz", "--steps", steps, "--check-against", self.folder / "m.ref.npz", "--export",
                         self.folder / "t.safetensors")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("agrees with the reference", result.stdout)

    def test_tied_language_model(self):
        module = Tied()
        random = numpy.random.default_rng(2)
        ids = random.integers(24, size=(20, 9))
        data = {"input_ids": ids[:, :-1].copy(), "labels": ids[:, 1:].copy()}
        numpy.savez(self.folder / "d.npz", **data)
        names = zerocc_export.export(module, {"input_ids": torch.from_numpy(data["input_ids"][:2])}, self.folder / "m.onnx")
        self.assertEqual(names["table.weight"], ["table.weight", "head.weight"])
        self.assertEqual(set(names), {n for n, _ in module.named_parameters()})
        zerocc_export.reference(
            module, lambda m, b: functional.cross_entropy(m(b["input_ids"]).flatten(0, 1), b["labels"].flatten()), data,
            self.folder / "m.ref.npz", steps=5, batch=4)
        self.train(["--loss", "cross-entropy:logits", "--ranks", "2", "--stage", "3", "--micro-batch", "2"])
        before = module.inner.weight.detach().clone()
        zerocc_export.load(module, self.folder / "t.safetensors")
        self.assertFalse(torch.equal(before, module.inner.weight))
        self.assertIs(module.head.weight, module.table.weight)
        trained = zerocc_export.read_safetensors(self.folder / "t.safetensors")
        self.assertTrue(torch.equal(trained["table.weight"], module.head.weight))

    def test_own_loss_and_batch_norm(self):
        module = Normalized()
        random = numpy.random.default_rng(3)
        data = {"x": random.standard_normal((20, 2, 5, 5)).astype(numpy.float32),
                "target": random.standard_normal((20, 3)).astype(numpy.float32)}
        numpy.savez(self.folder / "d.npz", **data)
        zerocc_export.export(module, {"x": torch.from_numpy(data["x"][:4])}, self.folder / "m.onnx",
                             loss=functional.mse_loss, labels={"target": torch.from_numpy(data["target"][:4])})
        self.assertTrue(module.training)
        self.assertTrue(torch.equal(module.bn.running_mean, torch.zeros(6)))
        written = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(self.folder / "m.onnx").graph.initializer}
        self.assertTrue((written["bn.running_mean"] == 0).all() and (written["bn.running_var"] == 1).all())
        kinds = [node.op_type for node in onnx.load(self.folder / "m.onnx").graph.node]
        self.assertIn("BatchNormalization", kinds)
        zerocc_export.reference(module, lambda m, b: functional.mse_loss(m(b["x"]), b["target"]), data,
                                self.folder / "m.ref.npz", steps=5, batch=4)
        self.train(["--loss", "output:loss", "--ranks", "1", "--stage", "0", "--micro-batch", "4"])
        statistics = module.bn.running_mean.clone()
        zerocc_export.load(module, self.folder / "t.safetensors")
        self.assertFalse(torch.equal(statistics, module.bn.running_mean))

    def deepspeed_run(self, after, steps=5):
        """A run of torch, and what DeepSpeed would have saved after `after` steps: (module, optimizer then, data)."""
        module = Tied()
        ids = numpy.random.default_rng(4).integers(24, size=(4 * steps, 9))
        data = {"input_ids": ids[:, :-1].copy(), "labels": ids[:, 1:].copy()}
        numpy.savez(self.folder / "d.npz", **data)
        zerocc_export.export(module, {"input_ids": torch.from_numpy(data["input_ids"][:2])}, self.folder / "m.onnx")
        optimizer = zerocc_export.adamw(module.parameters())
        for step in range(steps):
            if step == after:
                torch.save(module.state_dict(), self.folder / "pytorch_model.bin")
                for name, parameter in module.named_parameters():
                    place = self.folder / "universal" / "zero" / name
                    place.mkdir(parents=True)
                    torch.save({"param": parameter.detach(), "cat_dim": 0}, place / "fp32.pt")
                    for key in ("exp_avg", "exp_avg_sq"):
                        torch.save({"param": optimizer.state[parameter][key]}, place / f"{key}.pt")
                    torch.save(optimizer.state[parameter]["step"].clone(), place / "step.pt")
            batch = {key: torch.from_numpy(value[4 * step:4 * step + 4]) for key, value in data.items()}
            optimizer.zero_grad()
            functional.cross_entropy(module(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten()).backward()
            optimizer.step()
        compiled = program("zerocc", "compile", self.folder / "m.onnx", "-o", self.folder / "m.zplan", "--lr", "1e-3",
                           "--weight-decay", "0.1", "--loss", "cross-entropy:logits", "--ranks", "2", "--stage", "3",
                           "--micro-batch", "2")
        self.assertEqual(compiled.returncode, 0, compiled.stderr)
        return module

    def test_universal_checkpoint_of_deepspeed_goes_on(self):
        module = self.deepspeed_run(after=3)
        names = zerocc_export.from_deepspeed(self.folder / "universal", self.folder / "hub")
        self.assertEqual(names, sorted(name for name, _ in module.named_parameters()))
        result = program("zero-run", self.folder / "m.zplan", "--model", self.folder / "m.onnx", "--data",
                         self.folder / "d.npz", "--steps", 5, "--weights", self.folder / "hub", "--export",
                         self.folder / "t.safetensors")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("goes on with the optimizer's states after 3 steps", result.stderr)
        for name, tensor in zerocc_export.read_safetensors(self.folder / "t.safetensors").items():
            expected = module.state_dict()[name]
            self.assertLess((tensor - expected).abs().max(), 2e-6, name)

    def test_consolidated_weights_of_deepspeed(self):
        module = self.deepspeed_run(after=2)
        zerocc_export.from_deepspeed(self.folder / "pytorch_model.bin", self.folder / "hub")
        saved = zerocc_export.read_safetensors(self.folder / "hub" / "model.safetensors")
        self.assertEqual(len({"table.weight", "head.weight"} & set(saved)), 1)  # tied: once
        self.assertFalse((self.folder / "hub" / "optimizer.safetensors").exists())
        result = program("zero-run", self.folder / "m.zplan", "--model", self.folder / "m.onnx", "--data",
                         self.folder / "d.npz", "--steps", 0, "--weights", self.folder / "hub", "--export",
                         self.folder / "t.safetensors")
        self.assertEqual(result.returncode, 0, result.stderr)
        before = torch.load(self.folder / "pytorch_model.bin", weights_only=True)
        for name, tensor in zerocc_export.read_safetensors(self.folder / "t.safetensors").items():
            self.assertTrue(torch.equal(tensor, before[name]), name)

    def test_deepspeed_refusals(self):
        self.deepspeed_run(after=1, steps=2)
        with self.assertRaisesRegex(ValueError, "neither a universal checkpoint nor consolidated"):
            (self.folder / "parts").mkdir()
            torch.save({}, self.folder / "parts" / "mp_rank_00_model_states.pt")
            zerocc_export.from_deepspeed(self.folder / "parts", self.folder / "hub")
        zero = self.folder / "universal" / "zero"
        (zero / "inner.weight" / "exp_avg.pt").unlink()
        with self.assertRaisesRegex(ValueError, "no moment1 of inner.weight"):
            zerocc_export.from_deepspeed(self.folder / "universal", self.folder / "hub")
        (zero / "inner.weight" / "fp32.pt").unlink()
        with self.assertRaisesRegex(ValueError, "has no fp32.pt"):
            zerocc_export.from_deepspeed(self.folder / "universal", self.folder / "hub")
        self.assertFalse((self.folder / "hub").exists())

        class Evil:
            def __reduce__(self):
                return (exec, ("raise SystemExit('code of a pickle has run')",))

        torch.save({"w": Evil()}, self.folder / "pytorch_model.bin")
        with self.assertRaises(Exception) as refused:
            zerocc_export.from_deepspeed(self.folder / "pytorch_model.bin", self.folder / "hub")
        self.assertNotIsInstance(refused.exception, SystemExit)

    def test_weightless(self):
        zerocc_export.export(Tied(), {"input_ids": torch.zeros(2, 8, dtype=torch.long)}, self.folder / "m.onnx",
                             weightless=True)
        result = program("zerocc", "compile", self.folder / "m.onnx", "-o", self.folder / "m.zplan", "--ranks", "4",
                         "--stage", "3", "--micro-batch", "1", "--loss", "cross-entropy:logits")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("weightless", result.stderr + result.stdout)

    def test_refusals(self):
        padded = nn.Sequential(nn.Embedding(4, 3, padding_idx=0))
        with self.assertRaisesRegex(ValueError, "padding row"):
            zerocc_export.export(padded, {"input": torch.zeros(1, 2, dtype=torch.long)}, self.folder / "m.onnx")
        unused = Normalized()
        unused.extra = nn.Linear(2, 2)
        with self.assertRaisesRegex(ValueError, "extra.weight: the exporter has written it 0 times"):
            zerocc_export.export(unused, {"x": torch.zeros(2, 2, 5, 5)}, self.folder / "m.onnx")
        self.assertEqual(list(self.folder.iterdir()), [])
        with self.assertRaisesRegex(ValueError, "active dropout"):
            zerocc_export.reference(nn.Dropout(0.5), None, {}, self.folder / "r.npz", steps=1, batch=1)


if __name__ == "__main__":
    unittest.main()
