# NCCL's and CUDA's headers for a LibTorch that has CUDA, as the target cohort_nccl_headers; without them
# COHORT_NCCL_MISSING says what is missing and the target does not exist.
include_guard(GLOBAL)

set(COHORT_NCCL_INCLUDE_DIR "" CACHE PATH "Folder of nccl.h, if it is neither beside LibTorch nor in the CUDA toolkit")

function(cohort_find_nccl torch_root)
  set(COHORT_NCCL_MISSING "" PARENT_SCOPE)
  if(NOT EXISTS "${torch_root}/lib/libtorch_cuda.so")
    set(COHORT_NCCL_MISSING "the LibTorch that Cohort was built with has no CUDA" PARENT_SCOPE)
    return()
  endif()
  # pip installs NVIDIA's packages beside torch: nvidia/nccl/include, nvidia/cu13/include, nvidia/cuda_runtime/include.
  get_filename_component(torch_root "${torch_root}" REALPATH)
  file(GLOB beside LIST_DIRECTORIES true "${torch_root}/../nvidia/*/include")
  set(toolkits "$ENV{CUDA_HOME}/include" "$ENV{CUDA_PATH}/include" /usr/local/cuda/include)
  set(includes "")
  foreach(header nccl.h cuda_runtime_api.h crt/host_config.h)
    find_path(found_folder NAMES ${header} PATHS ${COHORT_NCCL_INCLUDE_DIR} ${beside} ${toolkits} /usr/include NO_DEFAULT_PATH
              NO_CACHE)
    if(NOT found_folder)
      set(COHORT_NCCL_MISSING "${header} was not found when Cohort was built" PARENT_SCOPE)
      return()
    endif()
    list(APPEND includes "${found_folder}")
    unset(found_folder)
  endforeach()
  list(REMOVE_DUPLICATES includes)
  list(REMOVE_ITEM includes /usr/include)
  message(STATUS "NCCL: ${includes}")
  add_library(cohort_nccl_headers INTERFACE)
  target_include_directories(cohort_nccl_headers INTERFACE ${includes})
endfunction()
