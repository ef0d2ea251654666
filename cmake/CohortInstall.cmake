# Installation: the launcher, libcohort.so, its headers, and a package that find_package(Cohort) finds. The Python package has the
# same headers and CMake files, elsewhere (python/CMakeLists.txt).
include(GNUInstallDirs)

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

set(cohort_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Cohort)
set_target_properties(cohort PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS cohort cohort_torch_release EXPORT CohortTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT CohortTargets NAMESPACE cohort:: DESTINATION ${cohort_package_dir})
if(TARGET cohort_extras)
  set_target_properties(cohort_extras PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS cohort_extras EXPORT CohortExtrasTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT CohortExtrasTargets NAMESPACE cohort:: DESTINATION ${cohort_package_dir})
endif()
cohort_install_headers(${CMAKE_INSTALL_INCLUDEDIR})
cohort_install_cmake_files(${cohort_package_dir} "${COHORT_TORCH_ROOT_FOUND}")
