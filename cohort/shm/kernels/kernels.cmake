# One source per instruction set, compiled for it alone. -ffp-contract=off: no fused multiply-add, so that all sets agree.
# -fno-trapping-math: no code reads the floating-point flags, so conversions need no branches.
set(everywhere -ffp-contract=off -fno-fast-math -fno-trapping-math)
if(NOT COHORT_SANITIZER)
  list(APPEND everywhere -O3)  # with a sanitizer it would cost minutes of compile time and find nothing more
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns inside its own AVX-512 headers (GCC bug 105593).
  list(APPEND everywhere -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

function(cohort_kernels source)
  target_sources(cohort_shm PRIVATE kernels/${source})
  set_source_files_properties(kernels/${source} PROPERTIES COMPILE_OPTIONS "${everywhere};${ARGN}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

target_sources(cohort_shm PRIVATE kernels/instruction_set.cpp kernels/kernels.cpp)
cohort_kernels(scalar.cpp)
if(COHORT_SANITIZER STREQUAL "thread")
  # Data races are the same for all sets, and the vector sets take a minute to compile with it.
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  if(COHORT_SANITIZER STREQUAL "address")
    # Undefined behavior is checked in scalar.cpp, which has the same recipes; and a call checks an address with less code
    # to compile. Together they take 0.4 of the time.
    list(APPEND everywhere -fno-sanitize=undefined)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      list(APPEND everywhere --param=asan-instrumentation-with-call-threshold=0)
    endif()
  endif()
  cohort_kernels(avx2.cpp -mavx2 -mf16c)
  cohort_kernels(avx512.cpp ${avx512})
  cohort_kernels(avx512_bf16.cpp ${avx512} -mavx512bf16)
  target_compile_definitions(cohort_shm PRIVATE COHORT_SHM_X86_KERNELS)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  cohort_kernels(neon.cpp)
  target_compile_definitions(cohort_shm PRIVATE COHORT_SHM_NEON_KERNELS)
endif()
