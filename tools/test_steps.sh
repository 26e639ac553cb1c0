# The steps of ./dev test, one function each; sourced by ./dev. A step prints what it finds and either returns
# 0 / non-zero (one test) or leaves counts with "count PASSED FAILED SKIPPED". Its output goes to build/test-logs.

QUICK_STEPS="includes headers plain_cc symbols gcc readme python cases"
ALL_STEPS="includes headers plain_cc symbols gcc readme python cases browser conformance isa install wheel clang
    old_x86 asan tsan aarch64"
LONG_STEPS="torch" # only with --full
LOGS=build/test-logs
jobs=$(nproc)

count() { printf '%s %s %s\n' "$@" >"$LOGS/$step.count"; }
lacking() { # lacking REASON: the whole step is skipped, and says why
    say "skipped: $*"
    count 0 0 1
}

# ctest_in FOLDER [CTEST ARGUMENTS]: runs the tests of a build folder and counts them. $runner comes before ctest.
runner=""
ctest_in() {
    local folder=$1 log=$LOGS/$step.ctest status=0
    shift
    $runner ctest --test-dir "$folder" -V --no-tests=error -j "$jobs" "$@" >"$log" 2>&1 || status=$?
    count $(awk -f tools/count_tests.awk "$log")
    [ $status -eq 0 ] && { [ -s "$log" ] && grep -E '\[  SKIPPED \] [a-z]' "$log" || true; } && return 0
    grep -E '^ *[0-9]+: (.*(ERROR|error|FAILED|Sanitizer|LINE  |runtime error|Assertion).*)' "$log" | head -n 60
    sed -n '/The following tests FAILED/,$p' "$log"
    say "all of it: $log"
    return 1
}

build_and_test() { # build_and_test PRESET [CTEST ARGUMENTS]
    local preset=$1 folder=build-$1
    shift
    [ "$preset" != release ] || folder=build
    configure "$preset" -DATTN_WERROR=ON
    ninja -C "$folder" || return 1
    ctest_in "$folder" "$@"
}

# ---- Rules about the sources ---------------------------------------------------------------------
step_includes() { python3 tools/check_includes.py; }

step_headers() { # each public header alone, as C99 and C++11
    local header
    for header in include/attn/*.h; do
        cc -std=c99 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c "$header" || return 1
        g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ "$header" || return 1
    done
}

step_plain_cc() { # every libattn source with plain cc and no other flag; a warning (an implicit declaration) fails too
    local complaints
    complaints=$(find src/core src/kernels src/ops -name '*.c' -not -path '*/nn/*' -print0 |
        xargs -0 -P "$jobs" -I{} sh -c 'cc -Iinclude -Isrc -c "$1" -o /dev/null || echo "plain cc refuses $1"' sh {} 2>&1)
    [ -z "$complaints" ] || { say "$complaints"; return 1; }
}

step_symbols() {
    quietly "$LOGS/symbols-build.log" ninja -C build attn attn_model || return 1
    sh tools/check_symbols.sh build
}

# ---- The gcc build -------------------------------------------------------------------------------
step_gcc() { build_and_test release; }

step_readme() { # the example of README.md; and that every table of docs/performance.md can be made from the kept results
    sh tools/check_readme.sh build || return 1
    python3 bench/run.py report build/performance.md && ! grep -n '^@.*@$' build/performance.md
}

unittests() { # unittests PYTHON PATTERN
    local log=$LOGS/$step.unittest status=0 ran failed skipped
    ATTN_LIBRARY=$PWD/build/libattn.so PYTHONPATH=$PWD/python "$1" -B -m unittest discover -v -s tests/python -p "$2" \
        >"$log" 2>&1 || status=$?
    ran=$(sed -nE 's/^Ran ([0-9]+) tests? .*/\1/p' "$log")
    failed=$(sed -nE 's/^FAILED.*(failures|errors)=([0-9]+).*/\2/p' "$log")
    skipped=$(sed -nE 's/^(OK|FAILED).*skipped=([0-9]+).*/\2/p' "$log")
    count $((${ran:-0} - ${failed:-0} - ${skipped:-0})) "${failed:-0}" "${skipped:-0}"
    grep -E '\.\.\. skipped' "$log" | sed -E 's/.*(skipped .*)/\1/' | sort | uniq -c || true
    [ $status -eq 0 ] || { cat "$log"; return 1; }
}

step_python() {
    "$test_python" -c 'import numpy' 2>/dev/null || { lacking "python3-numpy is not installed"; return; }
    unittests "$test_python" 'test_py_*.py'
}

# run_reporting COMMAND...: a program that ends with "N passed, N failed, N skipped".
run_reporting() {
    local log=$LOGS/$step.report status=0 line
    "$@" >"$log" 2>&1 || status=$?
    cat "$log"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    [ -n "$line" ] || return 1
    count $(printf '%s' "$line" | tr -cd '0-9 ')
    return $status
}

step_cases() {
    "$test_python" -c 'import numpy' 2>/dev/null || { lacking "python3-numpy is not installed"; return; }
    ATTN_LIBRARY=$PWD/build/libattn.so PYTHONPATH=$PWD/python \
        run_reporting "$test_python" tests/reports/run_cases.py tests/data/cases/*/
}

step_conformance() {
    "$test_python" -c 'import numpy, ml_dtypes, onnx' 2>/dev/null ||
        { lacking "numpy, ml_dtypes and onnx are not all here (.venv needs the network once)"; return; }
    ATTN_LIBRARY=$PWD/build/libattn.so PYTHONPATH=$PWD/python run_reporting "$test_python" tests/conformance/run_conformance.py
}

step_browser() { # the page of attn inspect in Chromium; playwright in a venv of its own
    local packages="playwright"
    if [ "$(cat .venv-browser/dev-packages 2>/dev/null)" != "$packages" ]; then
        if { python3 -m venv .venv-browser && .venv-browser/bin/python -m pip install --quiet --disable-pip-version-check $packages; } \
            >"$LOGS/browser-venv.log" 2>&1; then
            printf '%s' "$packages" >.venv-browser/dev-packages
        else
            rm -rf .venv-browser
            lacking "playwright could not be installed ($(tail -n 1 "$LOGS/browser-venv.log" | cut -c1-120))"
            return
        fi
    fi
    command -v chromium >/dev/null || (need "test the page in a browser" chromium) ||
        { lacking "chromium is not installed and could not be"; return; }
    run_reporting .venv-browser/bin/python -B tests/browser/test_page.py build/attn
}

# ---- Other instruction sets ----------------------------------------------------------------------
# ISA levels below the best one that this CPU has.
lower_isa_levels() {
    case "$(uname -m)" in
        x86_64)
            echo scalar
            grep -qw avx512f /proc/cpuinfo && echo avx2
            grep -qw avx512_bf16 /proc/cpuinfo && echo avx512
            ;;
        aarch64) echo scalar ;;
    esac
    return 0
}

test_names() { # test_names AREA...: the test programs of these areas
    local area
    for area in "$@"; do find "tests/$area" -name 'test_*.c' -exec basename {} .c ';' 2>/dev/null; done
    return 0
}

step_isa() { # kernel and property tests at each lower level (test_simd_* have their own, whatever ATTN_ISA says)
    local level passed=0 failed=0 skipped=0 status=0 p f s
    ninja -C build || return 1
    for level in $(lower_isa_levels); do
        say "level $level"
        ATTN_ISA=$level ctest_in build -R "^($(test_names kernels properties | paste -sd '|'))$" -E '^test_simd_' || status=1
        read -r p f s <"$LOGS/isa.count"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    done
    count $passed $failed $skipped
    return $status
}

# Sanitized and emulated programs run some ten times slower: random problems and exhaustive loops are sampled.
sampled() { ATTN_FWD_PROBLEMS=${problems:-80} ATTN_SIMD_STRIDE=997 "$@"; }

step_old_x86() { # a CPU without AVX: a stray instruction stops the program
    [ "$(uname -m)" = x86_64 ] && command -v qemu-x86_64 >/dev/null || { lacking "qemu-x86_64 is not installed"; return; }
    local name passed=0 failed=0
    ninja -C build || return 1
    say "not run on the old CPU: test_simd_* (exhaustive, and run on this one); random problems: 40"
    rm -f "$LOGS"/old_x86-*
    test_names kernels unit | grep -v '^test_simd_' | ATTN_FWD_PROBLEMS=40 xargs -P "$jobs" -I{} sh -c \
        'timeout 300 qemu-x86_64 -cpu Nehalem build/tests/$1 >"$2/old_x86-$1.log" 2>&1 || mv "$2/old_x86-$1.log" "$2/old_x86-$1.failed"' \
        sh {} "$LOGS" || true
    for name in $(test_names kernels unit | grep -v '^test_simd_'); do
        [ ! -f "$LOGS/old_x86-$name.log" ] || { passed=$((passed + 1)); continue; }
        failed=$((failed + 1))
        say "$name:"
        tail -n 5 "$LOGS/old_x86-$name.failed"
    done
    count $passed $failed 0
    [ $failed -eq 0 ]
}

step_aarch64() {
    command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null ||
        { lacking "gcc-aarch64-linux-gnu or qemu-user is not installed"; return; }
    say "not run under qemu: test_gradients (finite differences take minutes there); random problems: 60; floats: every 997th"
    local level passed failed skipped status=0 p f s own="gradients|fwd_random|bwd_random|fwd_promises|decode|simd_.*|tiles_.*"
    problems=60 ATTN_UNDER_QEMU=1 sampled build_and_test aarch64 -E '^test_gradients$' || status=1
    read -r passed failed skipped <"$LOGS/aarch64.count"
    for level in neon neondot; do # below neonbf16, the best of the emulated CPU; `own` go through the levels themselves
        say "level $level"
        ATTN_ISA=$level ATTN_UNDER_QEMU=1 sampled ctest_in build-aarch64 -E "^test_($own)$" \
            -R "^($(test_names kernels properties | paste -sd '|'))$" || status=1
        read -r p f s <"$LOGS/aarch64.count"
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    done
    count $passed $failed $skipped
    return $status
}

# ---- Other compilers and sanitizers ---------------------------------------------------------------
step_clang() {
    command -v clang-14 >/dev/null || { lacking "clang-14 is not installed"; return; }
    say "not run with clang: test_cli_* and test_course (they drive the command line, and gcc's build ran them)"
    build_and_test clang -E '^test_(cli_.*|course)$'
}

step_asan() {
    say "not run under ASan: test_smollm2, test_cli_{embed,generate,inspect,run} (the models), test_cli_lab (it trains); random problems: 80; floats: every 997th"
    # gcc 12 does not align the frames of this check to 64 bytes (its bug 110027): vectors of AVX-512 on the stack then fault
    local after_return=1
    ! grep -qw avx512f /proc/cpuinfo || { after_return=0 && say "use of the stack after return is not looked for: gcc 12 and AVX-512"; }
    ASAN_OPTIONS=detect_stack_use_after_return=$after_return UBSAN_OPTIONS=print_stacktrace=1 \
        sampled build_and_test asan -E '^test_(smollm2|cli_embed|cli_generate|cli_inspect|cli_lab|cli_run)$'
}

# libattn with four threads; of libattn_model, whose loops go through the same pool, the programs that hand work to it, with two.
step_tsan() {
    local passed failed skipped p f s status=0 operator model="linear|gemm|layers|families|model_api|tokenizer_api|train"
    configure tsan -DATTN_WERROR=ON
    operator=$(test_names kernels properties api unit)
    ninja -C build-tsan $operator $(test_names nn layers models text train | grep -E "^test_($model)$") || return 1
    # TSan cannot place its shadow memory under wide address-space randomisation.
    ! setarch "$(uname -m)" -R true 2>/dev/null || runner="setarch $(uname -m) -R"
    say "not run under TSan: test_gradients (minutes), programs that start no threads; random problems: 80; floats: every 997th"
    ATTN_NUM_THREADS=4 sampled ctest_in build-tsan -R "^($(printf '%s' "$operator" | paste -sd '|'))$" -E '^test_gradients$' || status=1
    read -r passed failed skipped <"$LOGS/tsan.count"
    ATTN_NUM_THREADS=2 sampled ctest_in build-tsan -R "^test_($model)$" || status=1
    read -r p f s <"$LOGS/tsan.count"
    runner=""
    count $((passed + p)) $((failed + f)) $((skipped + s))
    return $status
}

# ---- Install --------------------------------------------------------------------------------------
step_install() { # installed into a folder, found by pkg-config and by CMake, used by a program
    local prefix=$PWD/build/test-install
    rm -rf "$prefix" build/test-consumer
    cmake --install build --prefix "$prefix" >/dev/null || return 1
    sh tools/check_install.sh "$prefix" build/test-consumer
}

step_wheel() { # the Python wheel: built, unpacked elsewhere, used
    .venv/bin/python -c 'import scikit_build_core, numpy' 2>/dev/null ||
        { lacking "scikit-build-core is not here (.venv needs the network once)"; return; }
    local folder=$PWD/build/wheel
    rm -rf "$folder"
    .venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w "$folder" . || return 1
    ls "$folder"/libattn-*-py3-none-*.whl || return 1
    .venv/bin/python -m zipfile -e "$folder"/libattn-*.whl "$folder/unpacked" || return 1
    find "$folder/unpacked" -name '*.so' | grep -qx "$folder/unpacked/attn/libattn.so" || return 1
    (cd / && env -u ATTN_LIBRARY PYTHONPATH="$folder/unpacked" "$OLDPWD/.venv/bin/python" -m attn info) || return 1
    (cd / && env -u ATTN_LIBRARY PYTHONPATH="$folder/unpacked" "$OLDPWD/.venv/bin/python" -c 'import attn.model_library as m; m.load()')
}

# PyTorch, Transformers, JAX and a notebook kernel are several gigabytes, so this runs with ./dev test --full only (or where
# .venv-torch is there already). All tests of the package: they skip less here than in the python step.
step_torch() {
    .venv-torch/bin/python -c 'import torch, transformers' 2>/dev/null ||
        { lacking "torch and transformers are not in .venv-torch (./dev test --full installs them)"; return; }
    local given=$PWD/../shared/conformance
    [ ! -d "$given/hf" ] || export ATTN_HF_MODELS="$given/hf"
    unittests .venv-torch/bin/python 'test_py_*.py' || return 1
    [ -f "$given/torch_dropin.py" ] || { say "skipped: PyTorch's samples with fresh seeds, its layers on libattn (../shared is not here)"; return; }
    given_suites "$given"
}

# PyTorch's OpInfo samples and layers with libattn below its operators; samples of a seed that no committed case has.
given_suites() {
    local given=$1 log=$LOGS/torch.given passed failed skipped p
    export ATTN_LIBRARY=$PWD/build/libattn.so PYTHONDONTWRITEBYTECODE=1
    PYTHONPATH=$PWD/python:$PWD/tests/conformance .venv-torch/bin/python "$given/torch_dropin.py" --adapter torch_adapter >"$log" 2>&1 ||
        { tail -n 40 "$log"; return 1; }
    p=$(sed -nE 's/^([0-9]+) passed, 0 failed$/\1/p' "$log")
    [ "${p:-0}" -gt 0 ] || { tail -n 40 "$log"; return 1; }
    rm -rf build/torch-cases
    .venv-torch/bin/python "$given/torch_export.py" build/torch-cases --seed 20261130 --grid 80 --mha 24 >"$log" 2>&1 || { tail -n 40 "$log"; return 1; }
    PYTHONPATH=$PWD/python "$test_python" tests/conformance/run_conformance.py build/torch-cases >"$log" 2>&1 || { tail -n 40 "$log"; return 1; }
    tail -n 1 "$log"
    read -r passed failed skipped <"$LOGS/torch.count"
    count $((passed + p + $(sed -nE 's/^([0-9]+) passed.*/\1/p' "$log"))) "$failed" "$skipped"
}

# ---- Running them ---------------------------------------------------------------------------------
# A Python for the tests: .venv where it could be made (it has ml_dtypes and onnx), else the system's.
choose_python() {
    local candidate packages="numpy ml_dtypes onnx==1.23.2 scikit-build-core"
    if [ "$1" = full ] && [ "$(cat .venv/dev-packages 2>/dev/null)" != "$packages" ]; then
        say "dev: making .venv for the Python tests" >&2
        if { python3 -m venv .venv && .venv/bin/python -m pip install --quiet --disable-pip-version-check $packages; } \
            >"$LOGS/venv.log" 2>&1; then
            printf '%s' "$packages" >.venv/dev-packages
        else
            rm -rf .venv
            say "dev: no .venv ($(tail -n 1 "$LOGS/venv.log" | cut -c1-120)); conformance and the wheel are skipped" >&2
        fi
    fi
    test_python=python3
    for candidate in .venv/bin/python python3 /usr/bin/python3; do
        if "$candidate" -c 'import numpy' 2>/dev/null; then test_python=$candidate; return 0; fi
    done
}

make_torch_venv() {
    ! .venv-torch/bin/python -c 'import torch, transformers, jax, nbclient' 2>/dev/null || return 0
    say "dev: installing PyTorch into .venv-torch (several GB)" >&2
    { python3 -m venv .venv-torch && .venv-torch/bin/python -m pip install --quiet numpy ml_dtypes torch expecttest \
        transformers sentence-transformers jax nbclient ipykernel; } >"$LOGS/venv.log" 2>&1 ||
        { rm -rf .venv-torch; say "dev: no PyTorch: $(tail -n 1 "$LOGS/venv.log" | cut -c1-120)" >&2; }
}

run_step() {
    step=$1
    local started=$SECONDS status=0 verdict
    rm -f "$LOGS/$step.count"
    (set -euo pipefail; "step_$step") >"$LOGS/$step.log" 2>&1 || status=$?
    [ -f "$LOGS/$step.count" ] || { [ $status -eq 0 ] && count 1 0 0 || count 0 1 0; }
    local p f s
    read -r p f s <"$LOGS/$step.count"
    [ $status -eq 0 ] || [ "$f" -gt 0 ] || f=1
    verdict=ok
    [ "$f" -eq 0 ] || verdict=FAILED
    [ "$p" -gt 0 ] || [ "$f" -gt 0 ] || verdict=skipped
    printf '%-12s %-8s %5d passed %3d failed %3d skipped %5d s\n' "$step" "$verdict" "$p" "$f" "$s" $((SECONDS - started))
    [ "$f" -eq 0 ] || tail -n 80 "$LOGS/$step.log" | sed 's/^/    /'
    [ "$s" -eq 0 ] || grep -iE 'skipped' "$LOGS/$step.log" | sort -u | head -n 12 | sed 's/^/    /' || true
    all_passed=$((all_passed + p)) all_failed=$((all_failed + f)) all_skipped=$((all_skipped + s))
}

run_tests() {
    local steps="" kind=full torch=0 name
    while [ $# -gt 0 ]; do
        case "$1" in
            --quick) kind=quick ;;
            --full) kind=full torch=1 ;;
            --list) say "quick: $QUICK_STEPS"; say "all:  " $ALL_STEPS; say "full:  all, and" $LONG_STEPS; return 0 ;;
            *) declare -F "step_$1" >/dev/null || fail "no step '$1'; there are: $ALL_STEPS $LONG_STEPS"; steps="$steps $1" ;;
        esac
        shift
    done
    if [ $kind = quick ]; then need "run the quick tests" $BUILD_PACKAGES $QUICK_TEST_PACKAGES
    else need "run the tests" $BUILD_PACKAGES $TEST_PACKAGES; fi
    build
    mkdir -p "$LOGS"
    [ $kind = quick ] || { fetch_model && fetch_model "$EMBEDDER_NAME"; } ||
        say "dev: without the models, their golden tests are skipped" >&2
    choose_python $kind
    [ $torch = 0 ] || make_torch_venv
    [ -n "$steps" ] || { [ $torch = 0 ] || steps="$ALL_STEPS $LONG_STEPS"; }
    [ -n "$steps" ] || { [ $kind = quick ] && steps=$QUICK_STEPS || steps=$ALL_STEPS; }
    all_passed=0 all_failed=0 all_skipped=0
    for name in $steps; do run_step "$name"; done
    say "$all_passed passed, $all_failed failed, $all_skipped skipped"
    [ $all_failed -eq 0 ]
}
