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

# The second C example, which embeds a sentence: it compiles, and says why where there is no such model.
if [ -e "$folder/libattn_model.so" ]; then
    awk '/^```c$/ { n++; inside = n == 2; next } /^```$/ { inside = 0 } inside' README.md >"$work/embed.c"
    [ -s "$work/embed.c" ] || { echo "README.md has no C example that embeds a sentence"; exit 1; }
    cc -std=c11 -Wall -Wextra -Werror -Iinclude "$work/embed.c" -o "$work/embed" -L"$folder" -Wl,-rpath,"$(cd "$folder" && pwd)" \
        -lattn_model -lattn
    if "$work/embed" "$work/nowhere" sentence >"$work/output.txt" 2>&1 || ! grep -q nowhere "$work/output.txt"; then
        cat "$work/output.txt"
        echo "README.md: the example that embeds a sentence does not say what is wrong"
        exit 1
    fi
fi
