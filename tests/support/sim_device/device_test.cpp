#include "tests/support/sim_device/device_test.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

#include "tests/support/rank_threads.h"
#include "tests/support/sim_device/stream_backend.h"

namespace cohort::sim {

void DeviceTest::SetUp() {
  install_requested_devices();
  set_schedule(requested_schedule());
}

void DeviceTest::TearDown() { synchronize(); }

void DeviceTest::run_late_work_on_demand_only() {
  auto schedule = requested_schedule();
  schedule.patience = std::chrono::hours(1);
  set_schedule(schedule);
}

void SimulatedDeviceTest::SetUp() {
  DeviceTest::SetUp();
  COHORT_SKIP_ON_REAL_DEVICES("it is about the simulation");
}

std::string backend_of_ranks() { return is_real() ? c10::str("cpu:gloo,", type(), ":stream") : "cohort"; }

namespace {

RankDevices devices_of(int rank, int world_size) {
  if (!is_real()) return {device(2 * rank), device(2 * rank + 1)};
  const int each = std::max(1, num_devices() / world_size);
  return {device(each * rank), device(each * rank + std::min(1, each - 1))};
}

}  // namespace

void run_ranks_with_devices(int world_size, const std::function<void(int, const Group&, const RankDevices&)>& fn) {
  COHORT_SKIP_WITH_FEWER_DEVICES_THAN(world_size);
  test::run_rank_threads(world_size, [&](int rank, const Group& group) {
    const comm::BackendRequest request{.store = c10::make_intrusive<c10d::PrefixStore>("sim/", group->getStore()),
                                       .rank = rank,
                                       .world_size = world_size,
                                       .timeout = std::chrono::seconds(100),
                                       .group_name = "devices",
                                       .global_ranks = {},
                                       .watch = nullptr,
                                       .device_id = std::nullopt};
    group->setBackend(type(), c10d::ProcessGroup::BackendType::CUSTOM, make_device_backend(request));
    fn(rank, group, devices_of(rank, world_size));
    synchronize();
  });
}

}  // namespace cohort::sim
