// What a rank of a program calculates, kept by name and written into a file that a test compares with Python's.
#pragma once

#include <ATen/Tensor.h>

#include <functional>
#include <iostream>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::test {

inline checkpoint::StateDict& kept_tensors() {
  static checkpoint::StateDict kept;
  return kept;
}

inline void keep(const std::string& name, const at::Tensor& tensor) {
  kept_tensors().insert(name, tensor.detach().contiguous().clone());
}

/// The whole of main(): `calculate` as a rank, on the backend argv[1]; what it keeps goes to the file argv[2].
inline int keep_of_rank(char** argv, const std::function<void()>& calculate) {
  try {
    init_process_group(argv[1]);
    calculate();
    checkpoint::save_file(kept_tensors(), argv[2]);
    barrier();
    destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

}  // namespace cohort::test
