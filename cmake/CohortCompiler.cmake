# Chooses Clang where it is installed and nobody asks for another compiler: it compiles these sources in half of GCC's time
# (docs/design/build.md). Included before project(). CXX=g++ or -DCMAKE_CXX_COMPILER=g++ asks for GCC.
include_guard(GLOBAL)

if(CMAKE_CXX_COMPILER OR DEFINED ENV{CXX} OR CMAKE_TOOLCHAIN_FILE OR NOT CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  return()
endif()
find_program(COHORT_CLANG NAMES clang++-19 clang++-18 clang++-17 clang++-16)
mark_as_advanced(COHORT_CLANG)
if(COHORT_CLANG)
  # It takes the newest GCC's standard library, whose headers may not be installed.
  file(WRITE "${CMAKE_BINARY_DIR}/CMakeFiles/probe.cpp" "#include <string>\n")
  execute_process(COMMAND "${COHORT_CLANG}" -std=c++20 -fsyntax-only "${CMAKE_BINARY_DIR}/CMakeFiles/probe.cpp"
                  RESULT_VARIABLE _cohort_clang_result OUTPUT_QUIET ERROR_QUIET)
  if(_cohort_clang_result EQUAL 0)
    set(CMAKE_CXX_COMPILER "${COHORT_CLANG}" CACHE FILEPATH "The C++ compiler")
  endif()
endif()
