#!/usr/bin/env bash
# The scripts' command lines: each parses, prints its usage, and refuses what it does not know before it does anything.
#     tests/tools/scripts_test.sh SOURCE_DIR
set -euo pipefail

root=$1
failures=0
fail() {
  echo "FAILED: $1" >&2
  failures=$((failures + 1))
}

# expect CODE COMMAND…: its exit code, without anybody at the keyboard. Leaves what it printed in $output.
expect() {
  local wanted=$1 code=0
  shift
  output=$("$@" 2>&1 </dev/null) || code=$?
  [[ $code -eq $wanted ]] || fail "$*: exit code $code instead of $wanted: $output"
}

for script in tools/setup tools/check tools/demo .ci/run; do
  [[ -x $root/$script ]] || fail "$script is not executable"
  expect 0 bash -n "$root/$script"
done

for script in setup check demo; do
  expect 0 "$root/tools/$script" --help
  [[ $output == "Usage: tools/$script"* ]] || fail "tools/$script --help prints no usage: $output"
  expect 2 "$root/tools/$script" --no-such-flag
  [[ $output == *"error: tools/$script: unknown argument --no-such-flag"*"hint: tools/$script --help"* ]] ||
    fail "tools/$script --no-such-flag: $output"
done

for steps in "" 0 -1 many 1e3; do
  expect 2 "$root/tools/demo" --steps $steps # unquoted: none at all, the first time
done

expect 0 "$root/tools/setup" --list
for package in g++ cmake ninja-build llvm-14-dev libonnx-dev libprotobuf-dev; do
  [[ $'\n'$output$'\n' == *$'\n'"$package"$'\n'* ]] || fail "tools/setup --list has no $package: $output"
done

[[ $failures -eq 0 ]] && echo "scripts_test: passed"
