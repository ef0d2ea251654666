# Installation: the launcher, libcohort.so, its headers, and a package that find_package(Cohort) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET cohort_launcher)
  install(TARGETS cohort_launcher RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET cohort_data_tool)
  install(TARGETS cohort_data_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET cohort_ckpt_tool)
  install(TARGETS cohort_ckpt_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(NOT TARGET cohort)
  return()
endif()

set_target_properties(cohort PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS cohort cohort_torch_release EXPORT CohortTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Header by header, and nothing else.
include(public_headers)
foreach(header IN LISTS COHORT_PUBLIC_HEADERS COHORT_NARROW_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()

set(cohort_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Cohort)
install(EXPORT CohortTargets NAMESPACE cohort:: DESTINATION ${cohort_package_dir})
configure_package_config_file(cmake/CohortConfig.cmake.in "${PROJECT_BINARY_DIR}/CohortConfig.cmake"
                              INSTALL_DESTINATION ${cohort_package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/CohortConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/CohortConfig.cmake" "${PROJECT_BINARY_DIR}/CohortConfigVersion.cmake"
              cmake/CohortTorch.cmake cmake/CohortPrecompile.cmake cmake/user_precompiled.h DESTINATION ${cohort_package_dir})
