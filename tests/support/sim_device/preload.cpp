// Simulated devices for a program that knows nothing of them:
//
//   LD_PRELOAD=build/lib/libcohort_sim_preload.so COHORT_TEST_SIM=cuda,late-default build/bin/examples/toy_model
#include "cohort/comm/registry/backend_registry.h"
#include "tests/support/sim_device/requested_devices.h"
#include "tests/support/sim_device/stream_backend.h"

namespace cohort::sim {
namespace {

const bool is_preloaded = [] {
  install_requested_devices();
  register_stream_backend();
  return true;
}();

}  // namespace
}  // namespace cohort::sim
