# Installation: the launcher, libcohort.so, its headers, and a package that find_package(Cohort) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET cohort_launcher)
  install(TARGETS cohort_launcher RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(NOT TARGET cohort)
  return()
endif()

set_target_properties(cohort PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS cohort cohort_torch_release EXPORT CohortTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY cohort DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        PATTERN forward_declarations EXCLUDE PATTERN elastic EXCLUDE)

set(cohort_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Cohort)
install(EXPORT CohortTargets NAMESPACE cohort:: DESTINATION ${cohort_package_dir})
configure_package_config_file(cmake/CohortConfig.cmake.in "${PROJECT_BINARY_DIR}/CohortConfig.cmake"
                              INSTALL_DESTINATION ${cohort_package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/CohortConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/CohortConfig.cmake" "${PROJECT_BINARY_DIR}/CohortConfigVersion.cmake"
              cmake/CohortTorch.cmake DESTINATION ${cohort_package_dir})
