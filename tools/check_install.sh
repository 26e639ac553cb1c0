#!/bin/sh
# check_install.sh PREFIX WORK_FOLDER: a program of a user's finds the installed libattn through pkg-config and through
# CMake, and runs.
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
cc "$work/consumer.c" -o "$work/by-pkg-config" \
    $(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --cflags --libs attn)
LD_LIBRARY_PATH="$libdir" "$work/by-pkg-config"
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(attn REQUIRED)
add_executable(by-cmake consumer.c)
target_link_libraries(by-cmake attn::attn)
CMAKE
cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/by-cmake"
cd "$root"
