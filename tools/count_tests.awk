# Reads the output of "ctest -V" and prints "PASSED FAILED SKIPPED". A cmocka program counts with the numbers of its
# closing lines; any other program, and one that died before its closing lines, counts as one test.
function number_before(text) { sub(/ test\(s\), listed.*/, "", text); sub(/.* /, "", text); return text + 0 }
function number_after(text, word) { sub(".*" word, "", text); return text + 0 }
/^ *[0-9]+: \[  PASSED  \] [0-9]+ test/ { id = $1 + 0; closed[id] = 1; passed[id] += number_after($0, "PASSED  \\] ") }
/^ *[0-9]+: \[  SKIPPED \] .*[0-9]+ test\(s\), listed/ { id = $1 + 0; skipped[id] += number_before($0) }
/^ *[0-9]+: \[  FAILED  \] .*[0-9]+ test\(s\), listed/ { id = $1 + 0; failed[id] += number_before($0) }
/^ *[0-9]+\/[0-9]+ Test +#[0-9]+:/ {
    id = $0
    sub(/^[^#]*#/, "", id)
    id += 0
    if ($0 ~ /\*\*\*Skipped/) total_skipped++
    else if ($0 ~ / Passed /) total_passed += closed[id] ? passed[id] : 1
    else {
        total_passed += passed[id]
        total_failed += failed[id] ? failed[id] : 1
    }
    total_skipped += skipped[id]
}
END { print total_passed + 0, total_failed + 0, total_skipped + 0 }
