# One target per layer. A layer sees only the layers it names, so an include that points upwards does not link.
#
#   cohort_layer(base SOURCES a.cpp b.cpp)                      -> cohort_base, a static library without LibTorch
#   cohort_layer(comm TORCH SOURCES c.cpp DEPENDS base)         -> cohort_comm, objects that become libcohort.so
include_guard(GLOBAL)

function(cohort_layer name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  set(target cohort_${name})
  if(arg_TORCH)
    add_library(${target} OBJECT ${arg_SOURCES})
    target_link_libraries(${target} PUBLIC cohort::libtorch PRIVATE cohort_gloo_headers)
    cohort_use_precompiled_header(${target})
    set_property(GLOBAL APPEND PROPERTY COHORT_TORCH_LAYERS ${target})
  else()
    add_library(${target} STATIC ${arg_SOURCES})
    target_link_libraries(${target} PUBLIC Threads::Threads PRIVATE $<BUILD_INTERFACE:cohort_fmt_headers>)
    set_property(GLOBAL APPEND PROPERTY COHORT_PLAIN_LAYERS ${target})
  endif()
  cohort_use_unity_build(${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:cohort_warnings>)
  foreach(dependency IN LISTS arg_DEPENDS)
    if(NOT TARGET cohort_${dependency})
      message(FATAL_ERROR "layer '${name}' depends on '${dependency}', which is not below it (see cohort/CMakeLists.txt)")
    endif()
    # Headers and order only: torch layers are linked once, into libcohort.so.
    get_target_property(kind cohort_${dependency} TYPE)
    if(kind STREQUAL "OBJECT_LIBRARY")
      add_dependencies(${target} cohort_${dependency})
    else()
      target_link_libraries(${target} PUBLIC cohort_${dependency})
    endif()
  endforeach()
endfunction()

# Several sources become one translation unit: each alone spends most of its time on LibTorch's headers and on code that they
# make every user generate. Names in anonymous namespaces must therefore be unique within a layer.
function(cohort_use_unity_build target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${COHORT_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# One slim precompiled header, shared by every target that uses LibTorch; cmake/precompiled.h says what keeps it slim.
#
#   cohort_use_precompiled_header(target)
#   cohort_use_precompiled_header(target UNOPTIMIZED)    a second one, for cohort_do_not_optimize(): a compiler takes none of other flags
function(cohort_use_precompiled_header target)
  set(header cohort_pch)
  if("UNOPTIMIZED" IN_LIST ARGN AND CMAKE_BUILD_TYPE STREQUAL "Release")
    set(header cohort_unoptimized_pch)
  endif()
  if(NOT TARGET ${header})
    file(WRITE "${PROJECT_BINARY_DIR}/${header}.cpp" "")
    add_library(${header} OBJECT "${PROJECT_BINARY_DIR}/${header}.cpp")
    target_link_libraries(${header} PRIVATE cohort::libtorch cohort_gloo_headers cohort_warnings Threads::Threads)
    target_precompile_headers(${header} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/precompiled.h")
    if(header STREQUAL "cohort_unoptimized_pch")
      cohort_do_not_optimize(${header})
    endif()
  endif()
  if(NOT TARGET cohort_torch_fmt)
    # LibTorch brings fmt's headers, newer ones than the distribution, and no library of it.
    add_library(cohort_torch_fmt STATIC "${PROJECT_SOURCE_DIR}/cohort/base/fmt.cpp")
    target_link_libraries(cohort_torch_fmt PRIVATE cohort::libtorch cohort_warnings)
  endif()
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:cohort_torch_fmt>)
  target_precompile_headers(${target} REUSE_FROM ${header})
endfunction()
