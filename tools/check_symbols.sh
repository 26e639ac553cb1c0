#!/bin/sh
# check_symbols.sh BUILD_FOLDER [--update]: the symbols that the libraries export are those of the committed lists, each
# of them is declared in a public header, and libattn needs libc, libm and the dynamic loader only.
set -eu
folder=$1
status=0
exported() { nm -D --defined-only "$1" | awk '$2 ~ /[A-Z]/ { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort; }

for library in libattn libattn_model; do
    [ -e "$folder/$library.so" ] || { echo "$folder/$library.so is not built"; exit 1; }
    list=tests/api/$library.symbols
    [ "${2:-}" != --update ] || exported "$folder/$library.so" >"$list"
    if ! exported "$folder/$library.so" | diff -u "$list" -; then
        echo "$library.so does not export what $list says ('-' is missing, '+' is new);"
        echo "where the change of a public header is meant: sh tools/check_symbols.sh $folder --update"
        status=1
    fi
    for symbol in $(cat "$list"); do
        grep -qwE "$symbol" include/attn/*.h || { echo "$library.so exports $symbol, which no public header declares"; status=1; }
    done
done
# What the headers declare exists in one of the libraries (ATTN_API made recognisable, comments gone).
declared=$(for header in include/attn/*.h; do cc -E -P -Iinclude -DATTN_API=EXPORTED -x c "$header"; done |
    tr '\n' ' ' | grep -oE 'EXPORTED [^;(]*\(' | sed -E 's/.*[ *]([A-Za-z0-9_]+) *\($/\1/' | LC_ALL=C sort -u)
for symbol in $declared; do
    cat tests/api/*.symbols | grep -qxF "$symbol" ||
        { echo "a public header declares $symbol, which no library exports"; status=1; }
done
# The names of libc, libm (with the vector maths and the loader that some compilers name), threads.
needed=$(readelf -d "$folder/libattn.so" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
for library in $needed; do
    case "$library" in
        libc.so.6 | libm.so.6 | libpthread.so.0 | ld-linux*.so.*) ;;
        *) echo "libattn.so needs $library; only libc, libm and threads are allowed"; status=1 ;;
    esac
done
echo "libattn.so needs: $(echo $needed)"
exit $status
