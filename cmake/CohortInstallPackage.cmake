# What an installation for C++ programs consists of, for whoever installs one: CohortInstall.cmake and the Python package.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)
include(public_headers)

# Header by header, and nothing else. Further words go to install().
function(cohort_install_headers folder)
  set(headers ${COHORT_PUBLIC_HEADERS} ${COHORT_INNER_HEADERS} ${COHORT_NARROW_HEADERS})
  if(TARGET cohort_extras)
    list(APPEND headers ${COHORT_EXTRAS_HEADERS})
  endif()
  foreach(header IN LISTS headers)
    cmake_path(GET header PARENT_PATH header_folder)
    install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION ${folder}/${header_folder} ${ARGN})
  endforeach()
endfunction()

# All but the files of targets. `torch_root`: where CohortConfig.cmake looks for LibTorch after the places that users name.
function(cohort_install_cmake_files folder torch_root)
  string(MAKE_C_IDENTIFIER "${folder}" made)
  set(made "${PROJECT_BINARY_DIR}/${made}")
  set(COHORT_INSTALLED_TORCH_ROOT "${torch_root}")
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/CohortConfig.cmake.in" "${made}/CohortConfig.cmake" INSTALL_DESTINATION ${folder})
  write_basic_package_version_file("${made}/CohortConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${made}/CohortConfig.cmake" "${made}/CohortConfigVersion.cmake" "${PROJECT_SOURCE_DIR}/cmake/CohortTorch.cmake"
                "${PROJECT_SOURCE_DIR}/cmake/CohortPrecompile.cmake" "${PROJECT_SOURCE_DIR}/cmake/user_precompiled.h"
          DESTINATION ${folder} ${ARGN})
endfunction()
