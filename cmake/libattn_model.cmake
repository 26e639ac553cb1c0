# libattn_model: layers, models, files, text, training, pictures; and the attn command.
find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

file(GLOB_RECURSE ATTN_MODEL_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/kernels/nn/*.c ${PROJECT_SOURCE_DIR}/src/ops/nn/*.c
  ${PROJECT_SOURCE_DIR}/src/layers/*.c ${PROJECT_SOURCE_DIR}/src/models/*.c
  ${PROJECT_SOURCE_DIR}/src/train/*.c ${PROJECT_SOURCE_DIR}/src/inspect/*.c ${PROJECT_SOURCE_DIR}/src/io/*.c
  ${PROJECT_SOURCE_DIR}/src/text/*.c ${PROJECT_SOURCE_DIR}/src/viz/*.c)
set(ATTN_MODEL_LIBS PkgConfig::JANSSON PkgConfig::PCRE2
  PkgConfig::UTF8PROC Threads::Threads m)

# The page of attn inspect: its script, style and markup as arrays.
set(ATTN_PAGE ${PROJECT_SOURCE_DIR}/src/viz/page)
set(ATTN_PAGE_SCRIPTS ${ATTN_PAGE}/data.js ${ATTN_PAGE}/show.js ${ATTN_PAGE}/heads.js ${ATTN_PAGE}/position.js
  ${ATTN_PAGE}/measures.js ${ATTN_PAGE}/page.js)
string(REPLACE ";" "," ATTN_PAGE_JOINED "${ATTN_PAGE_SCRIPTS}")
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/page_assets.c
  COMMAND ${CMAKE_COMMAND} "-DFILES=css=${ATTN_PAGE}/page.css;js=${ATTN_PAGE_JOINED};html=${ATTN_PAGE}/page.html"
    -DOUT=${PROJECT_BINARY_DIR}/page_assets.c -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${ATTN_PAGE}/page.css ${ATTN_PAGE_SCRIPTS} ${ATTN_PAGE}/page.html ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  VERBATIM)

add_library(attn_model_objs OBJECT ${ATTN_MODEL_SOURCES} ${PROJECT_BINARY_DIR}/page_assets.c)
target_link_libraries(attn_model_objs PRIVATE attn_flags ${ATTN_MODEL_LIBS})
target_compile_definitions(attn_model_objs PRIVATE ATTN_BUILDING)

add_library(attn_model SHARED $<TARGET_OBJECTS:attn_core> $<TARGET_OBJECTS:attn_model_objs>)
target_link_libraries(attn_model PUBLIC attn PRIVATE attn_flags ${ATTN_MODEL_LIBS})
target_link_options(attn_model PRIVATE -Wl,--no-undefined)
set_target_properties(attn_model PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)

add_library(attn_model_internal STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:attn_model_objs>)
target_link_libraries(attn_model_internal PUBLIC attn_internal ${ATTN_MODEL_LIBS})

# attn fetches its default models with the script that ./dev uses, which it carries as bytes.
set(ATTN_FETCH_SCRIPT ${PROJECT_SOURCE_DIR}/tools/fetch_model.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ATTN_FETCH_SCRIPT})
file(READ ${ATTN_FETCH_SCRIPT} fetch_bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" fetch_bytes "${fetch_bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," fetch_bytes "${fetch_bytes}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/fetch_script.inc CONTENT "${fetch_bytes}\n" @ONLY)

file(GLOB ATTN_CLI_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.c)
# The experiments of attn lab are part of the command and see public headers only.
file(GLOB ATTN_LAB_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/lab/*.c)
add_executable(attn_cli ${ATTN_CLI_SOURCES} ${ATTN_LAB_SOURCES})
set_target_properties(attn_cli PROPERTIES OUTPUT_NAME attn INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
target_link_libraries(attn_cli PRIVATE attn_flags attn_model attn PkgConfig::JANSSON m)
target_include_directories(attn_cli PRIVATE ${PROJECT_SOURCE_DIR}/cli ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/generated)
