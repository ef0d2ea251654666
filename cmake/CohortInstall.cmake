# Installation: the launcher, libcohort.so, its headers, and a package that find_package(Cohort) finds; the extras, if they are built.
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
set(headers ${COHORT_PUBLIC_HEADERS} ${COHORT_NARROW_HEADERS})
if(TARGET cohort_extras)
  list(APPEND headers ${COHORT_EXTRAS_HEADERS})
endif()
foreach(header IN LISTS headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()

set(cohort_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Cohort)
install(EXPORT CohortTargets NAMESPACE cohort:: DESTINATION ${cohort_package_dir})
if(TARGET cohort_extras)
  set_target_properties(cohort_extras PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS cohort_extras EXPORT CohortExtrasTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT CohortExtrasTargets NAMESPACE cohort:: DESTINATION ${cohort_package_dir})
endif()
configure_package_config_file(cmake/CohortConfig.cmake.in "${PROJECT_BINARY_DIR}/CohortConfig.cmake"
                              INSTALL_DESTINATION ${cohort_package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/CohortConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/CohortConfig.cmake" "${PROJECT_BINARY_DIR}/CohortConfigVersion.cmake"
              cmake/CohortTorch.cmake cmake/CohortPrecompile.cmake cmake/user_precompiled.h DESTINATION ${cohort_package_dir})
