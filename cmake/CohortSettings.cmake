# Settings shared by every target of the build: language level, visibility, compiler cache, linker, warnings, sanitizers.
include(CheckCXXCompilerFlag)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# -O2: -O3 costs a fifth more compile time and nothing else; the loops that gain by it ask for it (cohort/shm/kernels).
if(PROJECT_IS_TOP_LEVEL)
  string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
endif()

# One set of flags for library, tests and tools, so that one precompiled header serves all of them:
# programs are compiled -fPIC too, and every target hides its symbols.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_COMPILE_OPTIONS_PIE "-fPIC")
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
# What is exported for tests only stays inside where there are none: see cohort/export.h.
if(NOT COHORT_BUILD_TESTS)
  add_compile_definitions(COHORT_WITHOUT_TEST_EXPORTS)
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
endif()

find_program(COHORT_CCACHE ccache)
mark_as_advanced(COHORT_CCACHE)
if(PROJECT_IS_TOP_LEVEL AND COHORT_CCACHE)
  # Relative paths let two build folders, or two clones, share objects and the precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};CCACHE_NOHASHDIR=1"
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" "${COHORT_CCACHE}")
  list(JOIN CMAKE_CXX_COMPILER_LAUNCHER ";" CMAKE_CXX_COMPILER_LAUNCHER)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()

# For tests: half of what they cost at -O2 is optimizing code that runs once.
function(cohort_do_not_optimize target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
endfunction()

# For a program whose time is not its own code's, and that shares the library's precompiled header: train_gpt.
function(cohort_optimize_lightly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # So optimized, GCC 12 takes what the standard library's headers move for uninitialized.
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Wno-maybe-uninitialized>)
    if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
      # Flags that -O2 implies from GCC 13 on and -Og does not; without them the precompiled header is refused.
      foreach(flag -munroll-only-small-loops -mvzeroupper)
        string(MAKE_C_IDENTIFIER "COHORT_HAS${flag}" has_flag)
        check_cxx_compiler_flag(${flag} ${has_flag})
        if(${has_flag})
          target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${flag}>)
        endif()
      endforeach()
    endif()
  endif()
endfunction()

find_program(COHORT_MOLD mold)
mark_as_advanced(COHORT_MOLD)
if(PROJECT_IS_TOP_LEVEL AND COHORT_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(COHORT_SANITIZER)
  add_compile_options(-fsanitize=${COHORT_SANITIZER} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${COHORT_SANITIZER})
  if(COHORT_SANITIZER STREQUAL "address")
    # Without what address finds as well: null and object-size, and vptr, are a quarter of the time to compile.
    add_compile_options(-fsanitize=undefined -fno-sanitize=null,object-size,vptr -fno-sanitize-recover=undefined)
    add_link_options(-fsanitize=undefined)
  endif()
  if(COHORT_LIBFUZZER)
    add_compile_options(-fsanitize=fuzzer-no-link)
  endif()
endif()

# Warnings for our own targets; users of the library are not asked to share them.
add_library(cohort_warnings INTERFACE)
target_compile_options(cohort_warnings INTERFACE -Wall -Wextra -Wno-missing-field-initializers
                                                 $<$<BOOL:${COHORT_WARNINGS_AS_ERRORS}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 reports overlaps inside std::string that do not exist (GCC bug 105651).
  target_compile_options(cohort_warnings INTERFACE -Wno-restrict)
  # At -O1, as the dev preset has it, it does not see either that an intrusive_ptr is not null (GCC bug 104475).
  target_compile_options(cohort_warnings INTERFACE $<$<CONFIG:Debug>:-Wno-stringop-overflow>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++'s stable_sort calls a function that libstdc++ deprecates, and Clang reports it in the user's line.
  target_compile_options(cohort_warnings INTERFACE -Wno-deprecated-declarations)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # It takes every reference that a function returns for one into its temporary arguments.
  target_compile_options(cohort_warnings INTERFACE -Wno-dangling-reference)
endif()
find_package(Threads REQUIRED)
