"""Writes loss_scales.txt: how DeepSpeed's dynamic loss scale moves.

The rule of deepspeed/runtime/fp16/loss_scaler.py (DynamicLossScaler.update_scale, 0.19), restated with a scale factor of 2,
without consecutive hysteresis and without the error at the least scale. Columns: initial power, window, hysteresis, least |
steps (x: overflow) | the scale after each step.

    python3 record_loss_scales.py > loss_scales.txt
"""

import random


def scales(power, window, hysteresis, least, overflows):
    scale, iteration, last_overflow, left = 2.0**power, 0, -1, hysteresis
    for overflow in overflows:
        if overflow == "x":
            if hysteresis == 1 or left == 1:
                scale = max(scale / 2, least)
            else:
                left -= 1
            last_overflow = iteration
        elif (iteration - last_overflow) % window == 0:
            left = hysteresis
            scale *= 2
        iteration += 1
        yield scale


def main():
    random.seed(4)
    cases = [
        (16, 1000, 2, 1, "xxxxxxxxxxxxxxxxxxxx"),
        (4, 3, 2, 1, "...x..x...x......xx....xxxxxxxxx...."),
        (4, 1, 1, 0.25, "x.x.xxxxxxxxx....x"),
        (0, 5, 3, 1, ".....xx.....xx.xx.....x"),
        (8, 4, 2, 2, "".join(random.choice("...x") for _ in range(60))),
        (20, 7, 4, 1, "".join(random.choice(".......x") for _ in range(120))),
    ]
    for power, window, hysteresis, least, overflows in cases:
        after = " ".join(f"{s!r}" for s in scales(power, window, hysteresis, least, overflows))
        print(f"{power} {window} {hysteresis} {least} | {overflows} | {after}")


if __name__ == "__main__":
    main()
