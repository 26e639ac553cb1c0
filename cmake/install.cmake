if(SKBUILD) # the Python wheel: the libraries beside the package, and nothing else
  add_custom_target(wheel_libraries DEPENDS attn)
  install(FILES $<TARGET_FILE:attn> DESTINATION attn RENAME libattn.so)
  if(ATTN_MODEL) # it finds libattn by its name among the loaded libraries: the package loads that first
    add_dependencies(wheel_libraries attn_model)
    install(FILES $<TARGET_FILE:attn_model> DESTINATION attn RENAME libattn_model.so)
  endif()
  return()
endif()
install(TARGETS attn EXPORT attnTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(ATTN_MODEL)
  set_target_properties(attn_model PROPERTIES INSTALL_RPATH "$ORIGIN") # it finds libattn beside it in any prefix
  install(TARGETS attn_model EXPORT attnTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS attn_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES models/austen/config.json models/austen/model.safetensors models/austen/tokenizer.json
    DESTINATION ${CMAKE_INSTALL_DATADIR}/attn/austen) # what `attn run` shows offline
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/attn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT attnTargets NAMESPACE attn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
include(CMakePackageConfigHelpers)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/attnConfig.cmake.in attnConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
write_basic_package_version_file(attnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attnConfig.cmake ${PROJECT_BINARY_DIR}/attnConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
# The prefix relative to the file itself: an installation may be moved, and `cmake --install --prefix` may choose another.
file(RELATIVE_PATH ATTN_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(PC_NAME attn)
set(PC_DESCRIPTION "${PROJECT_DESCRIPTION}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/attn.pc.in attn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(ATTN_MODEL)
  set(PC_NAME attn_model)
  set(PC_DESCRIPTION "${PROJECT_DESCRIPTION}: models, tokenizers, training")
  set(PC_REQUIRES "Requires: attn = ${PROJECT_VERSION}\nRequires.private: jansson libpcre2-8 libutf8proc\n")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/attn.pc.in attn_model.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/attn_model.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
