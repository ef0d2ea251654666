# LibTorch as one imported target, cohort::libtorch.
#
# LibTorch's own find_package(Torch) fails on CUDA wheels where no CUDA toolkit is installed, and differs between
# releases. All that Cohort needs is the include folders, four definitions and two libraries, so we find those ourselves.
#
# Looked for in this order: COHORT_TORCH_ROOT, Torch_DIR, CMAKE_PREFIX_PATH, the project's .venv, the active Python.
# Sets: COHORT_TORCH_ROOT_FOUND, COHORT_TORCH_VERSION (as "2.13.0"), COHORT_TORCH_PYTHON (may be empty).
include_guard(GLOBAL)

set(COHORT_TORCH_TESTED_RELEASES 2.11 2.12 2.13)

function(_cohort_is_torch_root dir out)
  if(EXISTS "${dir}/include/ATen/core/Tensor.h" OR EXISTS "${dir}/include/ATen/ATen.h")
    if(EXISTS "${dir}/lib/libtorch_cpu.so" AND EXISTS "${dir}/lib/libc10.so")
      set(${out} TRUE PARENT_SCOPE)
      return()
    endif()
  endif()
  set(${out} FALSE PARENT_SCOPE)
endfunction()

function(_cohort_torch_of_python python out)
  set(${out} "" PARENT_SCOPE)
  if(NOT EXISTS "${python}")
    return()
  endif()
  execute_process(
    COMMAND "${python}" -c
            "import importlib.util as u,os;s=u.find_spec('torch');print(os.path.dirname(s.origin) if s and s.origin else '')"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(_cohort_find_torch_root out)
  set(candidates "")
  if(COHORT_TORCH_ROOT)
    list(APPEND candidates "${COHORT_TORCH_ROOT}")
  endif()
  if(Torch_DIR)
    list(APPEND candidates "${Torch_DIR}/../../..")
  endif()
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND candidates "${prefix}" "${prefix}/../..")
  endforeach()
  foreach(python "${PROJECT_SOURCE_DIR}/.venv/bin/python" "$ENV{VIRTUAL_ENV}/bin/python")
    _cohort_torch_of_python("${python}" of_python)
    if(of_python)
      list(APPEND candidates "${of_python}")
    endif()
  endforeach()
  find_program(_cohort_python3 NAMES python3)
  mark_as_advanced(_cohort_python3)
  _cohort_torch_of_python("${_cohort_python3}" of_python)
  if(of_python)
    list(APPEND candidates "${of_python}")
  endif()
  foreach(candidate IN LISTS candidates)
    get_filename_component(candidate "${candidate}" ABSOLUTE)
    _cohort_is_torch_root("${candidate}" ok)
    if(ok)
      set(${out} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  list(JOIN candidates "\n    " looked)
  message(FATAL_ERROR
    "Cohort needs LibTorch ${COHORT_TORCH_TESTED_RELEASES} and found none.\n"
    "  Looked in:\n    ${looked}\n"
    "  Run tools/dev/setup.sh to install it into .venv, or configure with -DCOHORT_TORCH_ROOT=/path/to/libtorch.")
endfunction()

function(_cohort_torch_version root out)
  set(line "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h torch/version.h)
    if(NOT line AND EXISTS "${root}/include/${header}")
      file(STRINGS "${root}/include/${header}" line REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    endif()
  endforeach()
  string(REGEX MATCHALL "[0-9]+" numbers "${line}")
  list(JOIN numbers "." version)
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# A LibTorch built with the old C++ ABI links std::string under other names: refuse it here, in words.
function(_cohort_check_abi root)
  find_program(_cohort_nm NAMES nm)
  mark_as_advanced(_cohort_nm)
  if(NOT _cohort_nm)
    return()
  endif()
  execute_process(COMMAND "${_cohort_nm}" -D --defined-only "${root}/lib/libc10.so" OUTPUT_VARIABLE symbols ERROR_QUIET)
  if(symbols AND NOT symbols MATCHES "__cxx11")
    message(FATAL_ERROR
      "LibTorch in ${root} was built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0), which Cohort cannot link.\n"
      "  Use a PyTorch wheel of release 2.11 to 2.13, or the 'cxx11 ABI' LibTorch zip.")
  endif()
endfunction()

_cohort_find_torch_root(COHORT_TORCH_ROOT_FOUND)
_cohort_torch_version("${COHORT_TORCH_ROOT_FOUND}" COHORT_TORCH_VERSION)
_cohort_check_abi("${COHORT_TORCH_ROOT_FOUND}")

string(REGEX MATCH "^[0-9]+\\.[0-9]+" _cohort_torch_release "${COHORT_TORCH_VERSION}")
if(NOT _cohort_torch_release IN_LIST COHORT_TORCH_TESTED_RELEASES)
  list(JOIN COHORT_TORCH_TESTED_RELEASES ", " _cohort_tested)
  message(WARNING "LibTorch ${COHORT_TORCH_VERSION} is not a release Cohort is tested with (${_cohort_tested}).")
endif()
message(STATUS "LibTorch ${COHORT_TORCH_VERSION}: ${COHORT_TORCH_ROOT_FOUND}")

if(NOT TARGET cohort::libtorch)
  add_library(cohort::libtorch INTERFACE IMPORTED GLOBAL)
  set_target_properties(cohort::libtorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${COHORT_TORCH_ROOT_FOUND}/include;${COHORT_TORCH_ROOT_FOUND}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;USE_RPC;USE_TENSORPIPE"
    INTERFACE_LINK_LIBRARIES "${COHORT_TORCH_ROOT_FOUND}/lib/libtorch_cpu.so;${COHORT_TORCH_ROOT_FOUND}/lib/libc10.so"
    # A CUDA wheel's libraries need others that its own run path finds; the linker need not see them.
    INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined;-Wl,-rpath,${COHORT_TORCH_ROOT_FOUND}/lib")
endif()
