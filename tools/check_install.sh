#!/bin/sh
# check_install.sh PREFIX WORK_FOLDER: a user's programs find the installed libraries through pkg-config and through CMake, and
# run: one of libattn, and the README's that embeds a sentence (on a tiny model; without its tokenizer it says so).
set -eu
prefix=$1
work=$2
root=$(cd "$(dirname "$0")/.." && pwd)
libdir=$(dirname "$(find "$prefix" -name libattn.so)")
mkdir -p "$work"
cat >"$work/consumer.c" <<'C'
#include <attn/attn.h>
#include <stdio.h>

int main(void)
{
    attn_ctx *ctx = NULL;
    if (attn_ctx_create(NULL, &ctx) != ATTN_OK)
        return 1;
    printf("libattn %s, %s\n", attn_version(), attn_ctx_isa(ctx));
    attn_ctx_destroy(ctx);
    return 0;
}
C
awk '/^```/ { inside = /^```c$/ && ++n == 2; next } inside' "$root/README.md" >"$work/embed.c"
for name in attn attn_model; do
    source=$work/consumer.c
    [ $name = attn ] || source=$work/embed.c
    cc "$source" -o "$work/$name" $(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --cflags --libs $name)
done
embeds() {
    "$1" "$root/tests/data/families/bert.safetensors" x 2>&1 | grep "no tokenizer"
}
LD_LIBRARY_PATH="$libdir" "$work/attn"
LD_LIBRARY_PATH="$libdir" embeds "$work/attn_model"
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(attn REQUIRED)
add_executable(by-cmake consumer.c)
target_link_libraries(by-cmake attn::attn)
add_executable(embed embed.c)
target_link_libraries(embed attn::attn_model)
CMAKE
cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/by-cmake"
embeds "$work/build/embed"
