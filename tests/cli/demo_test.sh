#!/usr/bin/env bash
# `gradloom demo --quick`, COMMAND and the folder of golden cases given: rows come as they are known, python3 is asked for
# numpy and PyTorch and may be anything, and a wrong result is told.
set -euo pipefail
command=$1 golden=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/empty" "$folder/golden"

demo() { # PATH for it, then arguments; what it prints, then its exit code, go to $folder/out
  local path=$1 code=0
  PATH=$path "$command" demo --quick "${@:2}" >"$folder/out" 2>&1 || code=$?
  echo "exit code $code" >>"$folder/out"
}
expect() {
  grep -Eq -- "$1" "$folder/out" && return
  echo "demo_test: no line like \"$1\" in:"
  cat "$folder/out"
  exit 1
}
python() {
  printf '#!/bin/sh\n%s\n' "$1" >"$folder/bin/python3"
  chmod +x "$folder/bin/python3"
}

# One that has numpy, a million times slower.
python 'echo "{\"numpy\":\"9.9\",\"torch\":null}"; while read -r line; do echo "{\"numpy\":1e9,\"torch\":null}"; done'
demo "$folder/bin:$PATH" --golden "$golden"
for op in GatherElementsGrad GatherGrad SliceGrad BroadcastGradientArgs; do expect "^$op +ORT: .* 0 .*right$"; done
expect "^GatherElementsGrad +\[64,1024,256\], axis 1 .* [0-9]+\.[0-9]+ +[0-9.]+ +[0-9]{4,} +right$" # x roof, loop, numpy
for op in GRUTraining GRUGrad; do expect "^$op +20 steps.* [0-9]+\.[0-9]+ +[0-9.]+ +[0-9]{4,} +right$"; done
expect "^a kernel of your own .* [0-9]{4,} +right$"
expect "^numpy 9.9, PyTorch is not installed for python3\.$"
expect "^all 10 results are right$"
if [[ -x ${command%/*}/train_gru ]]; then expect "^final loss [0-9.]+"; else expect "train_gru is not built"; fi
expect "^exit code 0$"

# One that ends the demo with its first word: what was known by then has been printed, though to a file.
# shellcheck disable=SC2016
python 'kill -KILL $PPID'
demo "$folder/bin:$PATH" --golden "$golden"
expect "^GatherGrad +ORT: 04_negative_same_row .*right$"
expect "^exit code 137$"

# None, and a case that wants other values.
for case in gather_elements_grad__middle gather_grad__embedding slice_grad__wide_middle broadcast_gradient_args__random03 reported__04_negative_same_row; do
  cp "$golden/$case.json" "$folder/golden"
done
sed -i 's/11.0,22.0/11.5,22.0/' "$folder/golden/reported__04_negative_same_row.json"
demo "$folder/empty" --golden "$folder/golden"
expect "^GatherGrad +ORT: 04_negative_same_row .* WRONG$"
expect "^numpy and PyTorch: no python3 that answers"
expect "^1 of 10 results are WRONG$"
expect "^exit code 1$"
