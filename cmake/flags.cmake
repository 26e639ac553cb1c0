# One interface target carries what every target of the project compiles with.
add_library(attn_flags INTERFACE)
target_compile_options(attn_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wvla -Wconversion -Wmissing-prototypes -Wstrict-prototypes
  -ffp-contract=off -fno-math-errno)
if(ATTN_WERROR)
  target_compile_options(attn_flags INTERFACE -Werror)
endif()
if(ATTN_SANITIZE)
  # -O1: gcc 12 takes minutes for one kernel file at -O2 under sanitizers, a third of that at -O1.
  target_compile_options(attn_flags INTERFACE -fsanitize=${ATTN_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all $<$<NOT:$<CONFIG:Debug>>:-O1>)
  target_link_options(attn_flags INTERFACE -fsanitize=${ATTN_SANITIZE})
endif()
if(ATTN_FUZZ) # the code under test is instrumented for coverage, not only the fuzz target
  target_compile_options(attn_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_compile_definitions(attn_flags INTERFACE _GNU_SOURCE)
target_include_directories(attn_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
