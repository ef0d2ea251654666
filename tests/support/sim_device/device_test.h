/// What tests on simulated devices share. CTest runs each program of them in both places ("sim" alone in a LibTorch with CUDA)
/// under every schedule.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "cohort/comm/group/process_group.h"
#include "tests/support/sim_device/requested_devices.h"

namespace cohort::sim {

/// Begins each test with devices that have nothing to do, and ends it so; what failed in a stream fails the test.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  /// Late work runs only when somebody waits for it, however slow the machine: what must not have happened yet, has not. Not for
  /// ranks that also meet on the host: a collective on the devices would wait for a rank that waits there.
  static void run_late_work_on_demand_only();
};

/// A rank's own two devices.
struct RankDevices {
  c10::Device first, second;
};

/// Ranks as threads of this process: up to kMaxDevices / 2 of them, in a group with Gloo for CPU tensors and StreamBackend for
/// the devices. The first exception is thrown again, with its rank before it.
void run_ranks_with_devices(int world_size, const std::function<void(int, const Group&, const RankDevices&)>& fn);

}  // namespace cohort::sim
