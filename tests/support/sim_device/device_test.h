/// What tests on simulated devices share. CTest runs each program of them in both places ("sim" alone in a LibTorch with CUDA)
/// under every schedule. With --sim=real the same tests run on the machine's own accelerator (tools/dev/gpu.sh): what can be
/// known of a simulation only is skipped, and where the simulation has the CPU's bits, numbers are close to them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

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

/// For what the simulation alone can do. Real devices: skipped.
class SimulatedDeviceTest : public DeviceTest {
 protected:
  void SetUp() override;
};

/// In a test of its own words: leaves it where devices are real, or too few.
#define COHORT_SKIP_ON_REAL_DEVICES(why) \
  if (::cohort::sim::is_real()) GTEST_SKIP() << "on real devices: " << (why)
#define COHORT_SKIP_WITH_FEWER_DEVICES_THAN(count) \
  if (::cohort::sim::num_devices() < (count)) GTEST_SKIP() << "needs " << (count) << " devices"

/// Backend of ranks that are processes, for the CPU and the devices.
std::string backend_of_ranks();

/// A rank's own two devices; of real ones, which may be fewer, perhaps one twice, or others' too.
struct RankDevices {
  c10::Device first, second;
};

/// Ranks as threads of this process: up to kMaxDevices / 2 of them, in a group with Gloo for CPU tensors and
/// make_device_backend()'s for the devices. The first exception is thrown again, with its rank before it.
/// Where there are fewer real devices than ranks, nothing runs and the test counts as skipped: autograd has one thread for each
/// device, and in it ranks would wait for each other.
void run_ranks_with_devices(int world_size, const std::function<void(int, const Group&, const RankDevices&)>& fn);

}  // namespace cohort::sim
