#!/bin/sh
# docs/tuning.md: its nest and the commands after "$ ". $1: the command; $2: the page.
set -e
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
ln -s "$1" "$folder/gradloom"
sed -n '/^kernel histogram/,/^}/p' "$2" >"$folder/histogram.loop"
commands=$(sed -n 's/^\$ //p' "$2")
cd "$folder"
PATH=.:$PATH
export PATH
sh -ex -c "$commands"
echo "entries: $(grep -c '^gradloom tuning 1$' my.log), ends: $(grep -c '^end$' my.log)"
