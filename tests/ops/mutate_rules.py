#!/usr/bin/env python3
"""Plants faults into one source file (gradient rules, an optimizer kernel), one at a time, and says which ones the tests notice.

    tests/ops/mutate_rules.py BUILD_DIR [--count N] [--seed S] [--source FILE] [--test NAME …]
    tests/ops/mutate_rules.py BUILD_DIR --source runtime/kernels/cpu/optimizer.cpp --test kernels_test

Run by hand, on a built tree. The source itself is never touched: each mutant is compiled from a temporary copy with the
file's own command of the build and linked in front of the libraries, so its object is taken instead of theirs. Faults are
textual: flipped signs, dropped terms, swapped operands, wrong ops, flags and factors. One that does not compile is no
fault; one that the tests let pass is printed, to be read: it is either a hole or no change of meaning.
"""

import argparse
import json
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What a token may wrongly be. Each occurrence of the pattern is one fault per replacement.
TOKENS = [
    (r"\bg\.add\(", ["g.sub("]),
    (r"\bg\.sub\(", ["g.add("]),
    (r"\bg\.mul\(", ["g.div(", "g.add("]),
    (r"\bg\.div\(", ["g.mul("]),
    (r"g\.unary\(OpKind::Neg, ", ["("]),
    (r"OpKind::Sin\b", ["OpKind::Cos"]),
    (r"OpKind::Cos\b", ["OpKind::Sin"]),
    (r"OpKind::Exp\b", ["OpKind::Tanh"]),
    (r"OpKind::Log\b", ["OpKind::Exp"]),
    (r"OpKind::Sign\b", ["OpKind::Abs"]),
    (r"OpKind::SoftmaxGrad\b", ["OpKind::LogSoftmaxGrad"]),
    (r"OpKind::LogSoftmaxGrad\b", ["OpKind::SoftmaxGrad"]),
    (r'"gt"', ['"lt"', '"ge"']),
    (r'"lt"', ['"gt"', '"le"']),
    (r'"eq"', ['"ne"']),
    (r"M_2_SQRTPI", ["1"]),
    (r"(?<=, )0\.5\)", ["1)"]),
    (r"(?<=, )1\)", ["2)"]),
    (r"(?<=, )0\)", ["1)"]),
    (r"(?<=, )2\)", ["1)"]),
    (r"(?<=, )3\)", ["2)"]),
    (r"\bn - 1\b", ["n"]),
    (r"\by\.input\(0\)(?!->type)", ["y.input(1)", "y.result()"]),
    (r"\by\.input\(1\)(?!->type)", ["y.input(0)"]),
    (r"\by\.result\(\)(?!->type)", ["y.input(0)"]),
    (r"\by\.result\(1\)", ["y.result(2)"]),
    (r"\by\.result\(2\)", ["y.result(1)"]),
    (r"!transA\b", ["transA"]),
    (r"!transB\b", ["transB"]),
    (r"(?<![!])\btransA \?", ["!transA ?"]),
    (r"(?<![!])\btransB \?", ["!transB ?"]),
    (r", y\.attributes\)", [")"]),
    (r" \+= ", [" -= "]),
    (r" -= ", [" += "]),
    (r" \*= ", [" += "]),
    (r" - 1\b", [""]),
    (r"\bstep - 1\b", ["step"]),
    (r"permutation\[i\]\] = static_cast<int64_t>\(i\)", ["i] = permutation[i]"]),
    (r" == 1\b", [" != 1"]),
    (r" < missing\b", [" <= missing"]),
    (r"\baxis - missing\b", ["axis"]),
    (r" < 2 \? 1", [" < 0 ? 1"]),
    (r"(?<!splatLike\()\bdys\[0\](?!->type| &&)", ["g.unary(OpKind::Neg, dys[0])", "g.scale(dys[0], 2)"]),
    (r"(?<=[(,] )dy\b", ["g.unary(OpKind::Neg, dy)"]),
    (r" \+ ", [" - "]),
    (r"(?<=[\w)]) - (?=[\w(])", [" + "]),
    (r"(?<=[\w)]) \* (?=[\w(])", [" / ", " + "]),
    (r"(?<=[\w)]) / (?=[\w(])", [" * "]),
]


def closing(text, opening):
    """Where the bracket at `opening` closes."""
    depth = 0
    for at in range(opening, len(text)):
        depth += text[at] in "({["
        depth -= text[at] in ")}]"
        if depth == 0:
            return at
    return -1


def arguments(text, opening):
    """Spans of the comma-separated parts inside of the bracket at `opening`."""
    end, parts, start, depth = closing(text, opening), [], opening + 1, 0
    for at in range(opening + 1, end):
        depth += text[at] in "({["
        depth -= text[at] in ")}]"
        if text[at] == "," and depth == 0:
            parts.append((start, at))
            start = at + 1
    return parts + [(start, end)] if end > 0 else []


def swapped(text, a, b):
    first, second = text[a[0]:a[1]], text[b[0]:b[1]]
    if first.strip() == second.strip():
        return text
    return text[:a[0]] + second + text[a[1]:b[0]] + first + text[b[1]:]


def faults(text):
    """(line number, what, mutated text) for every place where a fault can be planted."""
    code = re.sub(r"//[^\n]*", lambda comment: " " * len(comment.group()), text)
    found = []

    def plant(at, what, mutated):
        if mutated != text:
            found.append((text.count("\n", 0, at) + 1, what, mutated))

    for pattern, replacements in TOKENS:
        for match in re.finditer(pattern, code):
            if code[code.rfind("\n", 0, match.start()) + 1] == "#":
                continue
            for replacement in replacements:
                plant(match.start(), f"{match.group().strip()} -> {replacement.strip() or 'nothing'}",
                      text[:match.start()] + replacement + text[match.end():])
    for match in re.finditer(r"\bg\.(?:select|sub|div|matmul|slice|pad|gather|scatterAdd|compare|binary)\(|return \{", code):
        parts = arguments(code, match.end() - 1)
        shift = 1 if "select" in match.group() or "binary" in match.group() else 0
        symmetric = "compare" in match.group() and '"eq"' in text[parts[-1][0]:parts[-1][1]]
        if len(parts) >= 2 + shift and not symmetric:
            plant(match.start(), f"swapped operands of {match.group()}",
                  swapped(text, parts[shift], parts[shift + 1]))
        if match.group() == "return {":
            for a, b in parts:
                if text[a:b].strip() != "kNoGradient":
                    plant(a, f"dropped {' '.join(text[a:b].split())}", text[:a] + "kNoGradient" + text[b:])
    return found


def command_of(build, source):
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]) == source:
            return shlex.split(entry["command"])
    sys.exit(f"{source} has no command in {build}/compile_commands.json")


def link_command_of(build, test):
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", test], check=True, capture_output=True, text=True)
    return lines.stdout.strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=60, help="how many faults (0: all there are)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", type=pathlib.Path, default=ROOT / "compiler/ops/gradient_rules.cpp")
    parser.add_argument("--test", nargs="+", default=["gradient_test", "autodiff_test"])
    options = parser.parse_args()
    build, source = options.build.resolve(), options.source.resolve()

    candidates = faults(source.read_text())
    print(f"{len(candidates)} possible faults in {source.relative_to(ROOT)}, seed {options.seed}")
    random.Random(options.seed).shuffle(candidates)
    wanted = options.count or len(candidates)
    compile_command = command_of(build, source)
    links = {test: link_command_of(build, test) for test in options.test}

    noticed, missed, invalid = 0, [], 0
    with tempfile.TemporaryDirectory() as folder:
        mutant, object_file, binary = (pathlib.Path(folder) / name for name in ("mutant.cpp", "mutant.o", "test"))
        compiling = [word for word in compile_command if not word.startswith("-O")] + ["-O1"]
        compiling[compiling.index("-o") + 1] = str(object_file)
        compiling[compiling.index("-c") + 1] = str(mutant)

        def fails(test):
            link = re.sub(r"-o \S+", f"{object_file} -o {binary}", links[test], count=1)
            subprocess.run(link, shell=True, cwd=build, check=True, capture_output=True)
            try:
                return subprocess.run([binary], capture_output=True, timeout=120).returncode != 0
            except subprocess.TimeoutExpired:
                return True

        for line, what, text in candidates:
            if noticed + len(missed) == wanted:
                break
            # Highway compiles a file once per target by including it again: the copy must include itself.
            mutant.write_text(text.replace(f'"{source.relative_to(ROOT)}"', f'"{mutant}"'))
            if subprocess.run(compiling, cwd=build, capture_output=True).returncode:
                invalid += 1
            elif any(fails(test) for test in options.test):
                noticed += 1
            else:
                missed.append((line, what))
                print(f"not noticed: line {line}: {what}", flush=True)
    print(f"{noticed} of {noticed + len(missed)} faults noticed; {invalid} did not compile")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
