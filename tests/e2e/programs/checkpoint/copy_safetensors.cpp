// copy_safetensors FROM TO: loads a file and saves what was read, tensors and metadata. A file that cannot be read ends
// it with 1 and the reason on standard error.
#include <c10/util/Exception.h>

#include <iostream>

#include "cohort/checkpoint/file/safetensors.h"

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: copy_safetensors FROM TO\n";
    return 2;
  }
  const cohort::checkpoint::StateDict tensors = cohort::checkpoint::load_file(argv[1]);
  cohort::checkpoint::save_file(tensors, argv[2], cohort::checkpoint::load_metadata(argv[1]));
  return 0;
} catch (const c10::Error& error) {
  std::cerr << error.what_without_backtrace() << '\n';
  return 1;
}
