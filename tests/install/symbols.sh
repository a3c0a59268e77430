#!/bin/sh
# NM LIBRARY: what the shared library exports is what symbols.txt lists, no more and no less, but for what the compiler
# makes of inline functions and templates of public headers (weak symbols); and every function of the C header is among
# it. GRADLOOM_UPDATE=1 writes the list anew.
set -e
folder=$(dirname "$0")
header=$folder/../../include/gradloom/gradloom.h
export LC_ALL=C
exported=$("$1" -DC --defined-only "$2" | sed '/^[0-9a-f]* [VW] /d; s/^[0-9a-f]* [A-Za-z] //' | sort -u)
[ -z "$GRADLOOM_UPDATE" ] || echo "$exported" >"$folder/symbols.txt"
if ! echo "$exported" | diff "$folder/symbols.txt" -; then
  echo "exported, and not in symbols.txt: >; in it, and not exported: <"
  exit 1
fi
for name in $(grep -o '[ *]gradloom_[a-z_]*(' "$header" | tr -d ' *(' | sort -u); do
  if ! echo "$exported" | grep -qx "$name" && ! grep -q "define $name(" "$header"; then
    echo "gradloom.h declares $name, which is not exported"
    exit 1
  fi
done
