# cohort_precompile_headers(target): compiles what most sources of a training program include, LibTorch's headers above all, once for
# all sources of `target`, and not again when they change. Used by the build's users and, installed, by find_package(Cohort).
#
#   add_executable(train train.cpp)
#   target_link_libraries(train PRIVATE cohort::cohort)
#   cohort_precompile_headers(train)
include_guard(GLOBAL)

function(cohort_precompile_headers target)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "cohort_precompile_headers(${target}): there is no target of this name; add_executable comes first")
  endif()
  target_precompile_headers(${target} PRIVATE "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/user_precompiled.h")
endfunction()
