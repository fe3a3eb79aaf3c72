#!/usr/bin/env python3
"""Records what DeepSpeed's schedulers do into deepspeed_schedules.txt: one line a case, NAME:key=value,… | lr of update
0, 1, … | beta1 of the same. Needs torch and DeepSpeed's source: record_schedules.py path/to/deepspeed/runtime/lr_schedules.py
(read alone, without DeepSpeed's own imports)."""
import importlib.util
import logging
import sys
import types

import torch

STEPS = 24
CASES = [
    ("WarmupLR", dict(warmup_min_lr=0.0001, warmup_max_lr=0.01, warmup_num_steps=10)),
    ("WarmupLR", dict(warmup_max_lr=0.01, warmup_num_steps=8, warmup_type="linear")),
    ("WarmupLR", dict(warmup_num_steps=1)),
    ("WarmupDecayLR", dict(total_num_steps=20, warmup_min_lr=0.001, warmup_max_lr=0.01, warmup_num_steps=5)),
    ("WarmupDecayLR", dict(total_num_steps=16, warmup_num_steps=6, warmup_type="linear")),
    ("WarmupCosineLR", dict(total_num_steps=20, warmup_num_steps=5)),
    ("WarmupCosineLR", dict(total_num_steps=18, warmup_num_steps=6, warmup_min_ratio=0.1, cos_min_ratio=0.05,
                            warmup_type="linear")),
    ("OneCycle", dict(cycle_min_lr=0.001, cycle_max_lr=0.01, cycle_first_step_size=5)),
    ("OneCycle", dict(cycle_min_lr=0.001, cycle_max_lr=0.01, cycle_first_step_size=6, cycle_second_step_size=4,
                      decay_step_size=2, decay_lr_rate=0.5, decay_mom_rate=0.01)),
    ("OneCycle", dict(cycle_min_lr=0.001, cycle_max_lr=0.01, cycle_first_step_size=8, cycle_first_stair_count=4,
                      cycle_momentum=False)),
    ("LRRangeTest", dict(lr_range_test_min_lr=0.001, lr_range_test_step_size=4, lr_range_test_step_rate=2.0)),
    ("LRRangeTest", dict(lr_range_test_step_size=5, lr_range_test_staircase=True)),
]


def load(path):
    utils = types.ModuleType("deepspeed.utils")
    utils.logger = logging.getLogger("deepspeed")
    utils.logger.setLevel(logging.ERROR)
    sys.modules["deepspeed"] = types.ModuleType("deepspeed")
    sys.modules["deepspeed.utils"] = utils
    spec = importlib.util.spec_from_file_location("lr_schedules", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    schedules = load(sys.argv[1])
    lines = []
    for name, params in CASES:
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.02, betas=(0.9, 0.999))
        scheduler = getattr(schedules, name)(optimizer, **params)
        rates, betas = [], []
        for _ in range(STEPS):
            rates.append(repr(float(optimizer.param_groups[0]["lr"])))
            betas.append(repr(float(optimizer.param_groups[0]["betas"][0])))
            scheduler.step()
        text = ",".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in params.items())
        lines.append(f"{name}:{text} | {' '.join(rates)} | {' '.join(betas)}")
    with open(__file__.replace("record_schedules.py", "deepspeed_schedules.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


main()
