// A rank with a control plane: init_process_group, three all_reduces, then it waits for the end of its input.
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/report/worker_server.h"

int main() try {
  namespace control_plane = c10d::control_plane;
  control_plane::registerHandler("echo", [](const control_plane::Request& request, control_plane::Response& response) {
    if (request.getParam("throw") == "yes") throw std::runtime_error("as you wish");
    response.setStatus(503);
    response.setContent(request.getParam("word") + "|" + request.body(), "text/x-echo");
  });
  cohort::comm::WorkerServer server;
  cohort::init_process_group("shm");
  at::Tensor tensor = at::ones({5});
  for (int i = 0; i < 3; ++i) cohort::all_reduce(tensor);
  std::printf("listening at \"%s\"\n", server.path().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  server.shutdown();
  cohort::destroy_process_group();
  std::printf("done\n");
  return 0;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 3;
}
