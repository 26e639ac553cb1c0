# The Python wheel carries libattn, and libattn_model where what it needs is installed. ATTN_MODEL=ON or OFF decides instead
# (pip install . -C cmake.define.ATTN_MODEL=OFF).
if(NOT DEFINED ATTN_MODEL)
  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(ATTN_WHEEL_NEEDS QUIET jansson libpcre2-8 libutf8proc)
  endif()
  if(ATTN_WHEEL_NEEDS_FOUND)
    set(ATTN_MODEL ON)
  else()
    set(ATTN_MODEL OFF)
    message(STATUS "attn: jansson, PCRE2 or utf8proc is missing: the wheel has no libattn_model (attn.Model)")
  endif()
endif()
