# Each kernel object defines its table and nothing else that the linker sees. An inline function or a template compiled for
# AVX-512 could otherwise become the one copy that the whole program uses, also on machines without AVX-512.
#
#   cmake -DNM=nm -DOBJECTS=a.o:b.o -P check_kernel_symbols.cmake
string(REPLACE ":" ";" objects "${OBJECTS}")
list(FILTER objects INCLUDE REGEX "/kernels/(scalar|neon|avx[0-9a-z_]*)\\.cpp\\.")
list(LENGTH objects num_objects)
if(num_objects LESS 1)
  message(FATAL_ERROR "no kernel objects among: ${OBJECTS}")
endif()
foreach(object IN LISTS objects)
  execute_process(COMMAND "${NM}" --defined-only --extern-only "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" symbols "${symbols}")
  # The sanitizers add markers, which are data.
  list(FILTER symbols EXCLUDE REGEX "^$|__odr_asan|DW\\.ref\\.")
  set(others ${symbols})
  list(FILTER others EXCLUDE REGEX "^[0-9a-f]+ [DRB] _ZN6cohort3shm[0-9]+k[A-Za-z0-9]+KernelsE$")
  list(LENGTH symbols num_symbols)
  if(others OR NOT num_symbols EQUAL 1)
    list(JOIN symbols "\n  " text)
    message(FATAL_ERROR "${object} should define its kernel table alone, but defines:\n  ${text}")
  endif()
endforeach()
message(STATUS "${num_objects} kernel objects, each defines its table alone")
