# libattn: the operator. libc, libm and threads, nothing else.
find_package(Threads REQUIRED)
file(GLOB ATTN_CORE_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/core/*.c)
file(GLOB_RECURSE ATTN_OP_SOURCES CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/kernels/*.c ${PROJECT_SOURCE_DIR}/src/ops/*.c)
# kernels/nn and ops/nn (norms, linear layers, losses) belong to libattn_model.
list(FILTER ATTN_OP_SOURCES EXCLUDE REGEX "/(kernels|ops)/nn/")

# core is compiled once and linked, hidden, into both libraries; all but context.c, which holds public functions:
# there is one of those, in libattn.
list(FILTER ATTN_CORE_SOURCES EXCLUDE REGEX "/context\\.c$")
list(APPEND ATTN_OP_SOURCES ${PROJECT_SOURCE_DIR}/src/core/context.c)
add_library(attn_core OBJECT ${ATTN_CORE_SOURCES})
target_link_libraries(attn_core PRIVATE attn_flags Threads::Threads)
target_compile_definitions(attn_core PRIVATE ATTN_BUILDING)
add_library(attn_ops OBJECT ${ATTN_OP_SOURCES})
target_link_libraries(attn_ops PRIVATE attn_flags Threads::Threads)
target_compile_definitions(attn_ops PRIVATE ATTN_BUILDING)

add_library(attn SHARED $<TARGET_OBJECTS:attn_core> $<TARGET_OBJECTS:attn_ops>)
target_link_libraries(attn PRIVATE attn_flags Threads::Threads m)
target_link_options(attn PRIVATE -Wl,--no-undefined)
target_include_directories(attn INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(attn PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)

# Tests reach inside: the same objects as a static library.
add_library(attn_internal STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:attn_core> $<TARGET_OBJECTS:attn_ops>)
target_link_libraries(attn_internal PUBLIC attn_flags Threads::Threads m)
