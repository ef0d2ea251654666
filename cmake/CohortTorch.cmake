# LibTorch as one imported target, cohort::libtorch. Used by the build and, installed, by find_package(Cohort).
#
# LibTorch's own find_package(Torch) fails on CUDA wheels where no CUDA toolkit is installed, and differs between
# releases. All that Cohort needs is the include folders, four definitions and two libraries, so we find those ourselves.
#
# Looked for in this order: COHORT_TORCH_ROOT, Torch_DIR, CMAKE_PREFIX_PATH, the LibTorch an installed Cohort was built
# against, .venv of the project (or of Cohort), the active virtual environment, python3.
#
# cohort_find_libtorch(problem) sets `problem` to a message, or to "" and then also
#   COHORT_TORCH_ROOT_FOUND and COHORT_TORCH_VERSION (as "2.13.0").
include_guard(GLOBAL)

set(COHORT_TORCH_TESTED_RELEASES 2.11 2.12 2.13)

function(_cohort_is_torch_root dir out)
  set(${out} FALSE PARENT_SCOPE)
  if(EXISTS "${dir}/include/ATen/ATen.h" AND EXISTS "${dir}/lib/libtorch_cpu.so" AND EXISTS "${dir}/lib/libc10.so")
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

# The folder of the torch package that `python` would import, found without importing it.
function(_cohort_torch_of_python python out)
  set(${out} "" PARENT_SCOPE)
  if(EXISTS "${python}")
    set(code "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.dirname(s.origin) if s and s.origin else '')")
    execute_process(COMMAND "${python}" -c "${code}" OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(${out} "${found}" PARENT_SCOPE)
  endif()
endfunction()

function(_cohort_torch_candidates out)
  set(candidates "")
  if(COHORT_TORCH_ROOT)
    set(${out} "${COHORT_TORCH_ROOT}" PARENT_SCOPE)  # asked for by name: take this one or none
    return()
  endif()
  if(Torch_DIR)
    list(APPEND candidates "${Torch_DIR}/../../..")
  endif()
  # torch.utils.cmake_prefix_path is share/cmake inside LibTorch; the unpacked zip is a prefix itself.
  set(prefixes ${CMAKE_PREFIX_PATH})
  if(DEFINED ENV{CMAKE_PREFIX_PATH})
    string(REPLACE ":" ";" from_environment "$ENV{CMAKE_PREFIX_PATH}")
    list(APPEND prefixes ${from_environment})
  endif()
  foreach(prefix IN LISTS prefixes)
    list(APPEND candidates "${prefix}" "${prefix}/../..")
  endforeach()
  list(APPEND candidates ${COHORT_INSTALLED_TORCH_ROOT})
  find_program(_cohort_python3 NAMES python3)
  mark_as_advanced(_cohort_python3)
  foreach(python "${CMAKE_SOURCE_DIR}/.venv/bin/python" "${PROJECT_SOURCE_DIR}/.venv/bin/python"
                 "$ENV{VIRTUAL_ENV}/bin/python" "${_cohort_python3}")
    _cohort_torch_of_python("${python}" of_python)
    list(APPEND candidates ${of_python})
  endforeach()
  set(${out} "${candidates}" PARENT_SCOPE)
endfunction()

function(_cohort_torch_version root out)
  set(line "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT line AND EXISTS "${root}/include/${header}")
      file(STRINGS "${root}/include/${header}" line REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    endif()
  endforeach()
  string(REGEX MATCHALL "[0-9]+" numbers "${line}")
  list(JOIN numbers "." version)
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# A LibTorch built with the old C++ ABI links std::string under other names: refuse it in words, not at link time.
function(_cohort_has_new_abi root out)
  file(STRINGS "${root}/lib/libc10.so" symbols REGEX "__cxx11" LIMIT_COUNT 1)
  set(${out} FALSE PARENT_SCOPE)
  if(symbols)
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

function(_cohort_add_libtorch_target root)
  # A program that names no CUDA symbol needs LibTorch's CUDA part all the same: it registers itself when loaded.
  set(cuda "")
  if(EXISTS "${root}/lib/libtorch_cuda.so" AND EXISTS "${root}/lib/libc10_cuda.so")
    set(cuda ";-Wl,--push-state,--no-as-needed,${root}/lib/libtorch_cuda.so,${root}/lib/libc10_cuda.so,--pop-state")
  endif()
  add_library(cohort::libtorch INTERFACE IMPORTED GLOBAL)
  set_target_properties(cohort::libtorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${root}/include;${root}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;USE_RPC;USE_TENSORPIPE"
    INTERFACE_LINK_LIBRARIES "${root}/lib/libtorch_cpu.so;${root}/lib/libc10.so${cuda}"
    # A CUDA wheel's libraries need others that its own run path finds; the linker need not see them.
    INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined;-Wl,-rpath,${root}/lib")
endfunction()

function(cohort_find_libtorch problem)
  set(${problem} "" PARENT_SCOPE)
  set(root "")
  _cohort_torch_candidates(candidates)
  foreach(candidate IN LISTS candidates)
    get_filename_component(candidate "${candidate}" ABSOLUTE)
    _cohort_is_torch_root("${candidate}" ok)
    if(ok)
      set(root "${candidate}")
      break()
    endif()
  endforeach()
  if(NOT root)
    list(JOIN candidates "\n    " looked)
    list(JOIN COHORT_TORCH_TESTED_RELEASES ", " tested)
    set(${problem}
        "Cohort needs LibTorch (tested releases: ${tested}) and found none.\n  Looked in:\n    ${looked}\n  \
Run tools/dev/setup.sh to install it into .venv, or configure with -DCOHORT_TORCH_ROOT=/path/to/libtorch." PARENT_SCOPE)
    return()
  endif()

  _cohort_has_new_abi("${root}" new_abi)
  if(NOT new_abi)
    set(${problem}
        "LibTorch in ${root} was built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0), which Cohort cannot link.\n  \
Use a PyTorch wheel of a tested release, or the LibTorch zip with the 'cxx11 ABI'." PARENT_SCOPE)
    return()
  endif()

  _cohort_torch_version("${root}" version)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" release "${version}")
  if(NOT release IN_LIST COHORT_TORCH_TESTED_RELEASES)
    list(JOIN COHORT_TORCH_TESTED_RELEASES ", " tested)
    message(WARNING "LibTorch ${version} in ${root} is not a release that Cohort is tested with (${tested}).")
  endif()
  if(NOT TARGET cohort::libtorch)
    message(STATUS "LibTorch ${version}: ${root}")
    _cohort_add_libtorch_target("${root}")
  endif()
  set(COHORT_TORCH_ROOT_FOUND "${root}" PARENT_SCOPE)
  set(COHORT_TORCH_VERSION "${version}" PARENT_SCOPE)
endfunction()
