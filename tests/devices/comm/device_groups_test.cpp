// Process groups on an accelerator that a registered backend serves.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cohort/base/system/env.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/group/device.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/comm/registry/backend_registry.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/stream_backend.h"

namespace cohort::sim {
namespace {

using DeviceGroups = SimulatedDeviceTest;

int worker_rank() { return std::stoi(base::get_env("RANK").value()); }

std::string type_name() { return c10::DeviceTypeName(type(), /*lower_case=*/true); }

void check_sum_on(const Group& group, c10::Device where) {
  const auto x = at::full({4}, get_rank() + 1.0, where);
  all_reduce(x, {.group = group});
  REQUIRE(x.cpu().equal(at::full({4}, 3.0)));
}

COHORT_WORKER(groups_with_devices) {
  install_requested_devices();
  REQUIRE(comm::accelerator()->num_devices == kMaxDevices);
  register_stream_backend();
  REQUIRE_EQUAL(get_default_backend_for_device(type()), type() == at::kCUDA ? "nccl" : "stream");
  init_process_group({.backend = "cohort"});
  REQUIRE_EQUAL(get_backend_config(),
                "cpu:cohort," + std::string(type() == at::kCUDA ? "" : "cuda:cohort,") + type_name() + ":cohort");
  REQUIRE(cohort::current_device() == device(get_rank()));
  check_sum_on({}, at::kCPU);
  check_sum_on({}, cohort::current_device());
  const auto by_device = new_group({}, {.backend = "cpu:gloo," + type_name() + ":stream"});
  check_sum_on(by_device, at::kCPU);
  check_sum_on(by_device, cohort::current_device());
  const auto alone = new_group({}, {.backend = "stream"});
  ObjectList objects(2);
  all_gather_object(objects, c10::IValue(get_rank()), {.group = alone});
  REQUIRE(objects[1].toInt() == 1);
  const comm::RankExchange ranks(alone);
  REQUIRE((ranks.largest({get_rank(), -get_rank()}) == std::vector<int64_t>{1, 0}));
  REQUIRE((ranks.all_done("paint", std::to_string(get_rank())) == std::vector<std::string>{"0", "1"}));
  REQUIRE_EQUAL(ranks.from_first(std::to_string(get_rank())).value(), "0");
  REQUIRE_EQUAL(test::error_of([] { new_group({}, {.backend = "tpu:stream"}); }),
                "[cohort] Unknown device \"tpu\" in the backend string \"tpu:stream\" (known: cpu, cuda" +
                    std::string(type() == at::kCUDA ? "" : ", " + type_name()) + ")");
  destroy_process_group();
}

TEST_F(DeviceGroups, ARegisteredBackendServesTheAcceleratorOfBackendCohort) {
  test::run_workers("groups_with_devices").expect_success();
}

COHORT_WORKER(group_of_the_default_backend) {
  install_requested_devices();
  register_stream_backend();
  init_process_group();
  REQUIRE_EQUAL(get_backend_config(), "sim:stream");
  check_sum_on({}, cohort::current_device());
  // Ranks that have not met yet find each other for what needs to know whether they share memory.
  if (get_rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto shared = new_group({}, {.backend = "shm"});
  check_sum_on(shared, at::kCPU);
  REQUIRE(comm::has_shared_memory(new_group({}, {.backend = "cohort"})));
  destroy_process_group(shared);
  REQUIRE(StreamBackend::num_shut_down() == 0);
  destroy_process_group();
  REQUIRE(StreamBackend::num_shut_down() == 2);
}

// Rank 0 asks for a group before rank 1 has begun.
COHORT_WORKER(late_rank_of_the_default_backend) {
  install_requested_devices();
  register_stream_backend();
  if (worker_rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  init_process_group();
  check_sum_on(new_group({}, {.backend = "shm"}), at::kCPU);
  destroy_process_group();
}

TEST_F(DeviceGroups, LaterGroupsWaitForRanksThatHaveNotCome) {
  if (type() == at::kCUDA) return;
  test::run_workers("late_rank_of_the_default_backend").expect_success();
}

// As in PyTorch the first backend registered for a new type of device becomes its default; CUDA's is NCCL.
TEST_F(DeviceGroups, ARegisteredBackendIsTheDefaultOfItsDevice) {
  if (type() == at::kCUDA) return;
  test::run_workers("group_of_the_default_backend").expect_success();
}

}  // namespace
}  // namespace cohort::sim
