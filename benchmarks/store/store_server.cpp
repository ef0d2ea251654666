// A rank of `store`: LibTorch's server. Prints its port.
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <unistd.h>

#include <iostream>

#include "benchmarks/support/question.h"

namespace cohort::bench {

int run_torch_store_server() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.useLibUV = true;
  const auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  std::cout << server->getPort() << "\n" << std::flush;
  while (true) pause();  // until it is killed
}

}  // namespace cohort::bench
