#!/bin/sh
# check_readme.sh BUILD_FOLDER: compiles the C example of README.md as it stands, runs it, and compares its output with
# the block that follows it.
set -eu
folder=$1
work=$folder/readme
mkdir -p "$work"
awk '/^```c$/ { inside = 1; next } /^```$/ && inside { exit } inside' README.md >"$work/example.c"
awk '/^```c$/ { seen = 1 } seen && /^```text$/ { inside = 1; next } /^```$/ && inside { exit } inside' README.md >"$work/expected.txt"
[ -s "$work/example.c" ] && [ -s "$work/expected.txt" ] || { echo "README.md has no C example with its output"; exit 1; }
cc -std=c11 -Wall -Wextra -Werror -Iinclude "$work/example.c" -o "$work/example" -L"$folder" -Wl,-rpath,"$(cd "$folder" && pwd)" -lattn -lm
"$work/example" >"$work/output.txt"
diff -u "$work/expected.txt" "$work/output.txt"
