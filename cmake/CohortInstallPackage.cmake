# What an installation for C++ programs consists of, for whoever installs one: CohortInstall.cmake and the Python package.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)
include(public_headers)

# Header by header, and nothing else. Further words go to install().
function(cohort_install_headers folder)
  foreach(header IN LISTS COHORT_PUBLIC_HEADERS COHORT_NARROW_HEADERS)
    cmake_path(GET header PARENT_PATH header_folder)
    install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION ${folder}/${header_folder} ${ARGN})
  endforeach()
endfunction()

# `torch_root`: where CohortConfig.cmake looks for LibTorch after the places that users name.
function(cohort_install_cmake_files export folder torch_root)
  set(made "${PROJECT_BINARY_DIR}/${export}")
  set(COHORT_INSTALLED_TORCH_ROOT "${torch_root}")
  set(COHORT_INSTALLED_TARGETS "${export}.cmake")
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/CohortConfig.cmake.in" "${made}/CohortConfig.cmake" INSTALL_DESTINATION ${folder})
  write_basic_package_version_file("${made}/CohortConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(EXPORT ${export} NAMESPACE cohort:: DESTINATION ${folder} ${ARGN})
  install(FILES "${made}/CohortConfig.cmake" "${made}/CohortConfigVersion.cmake" "${PROJECT_SOURCE_DIR}/cmake/CohortTorch.cmake"
                "${PROJECT_SOURCE_DIR}/cmake/CohortPrecompile.cmake" "${PROJECT_SOURCE_DIR}/cmake/user_precompiled.h"
          DESTINATION ${folder} ${ARGN})
endfunction()
