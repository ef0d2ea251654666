// The simulated devices notice what a GPU forgives on most days: a dropped wait, memory reused too early, an operator on two
// devices, host code that touches a device's memory. Each test has a right program beside the wrong one.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/sim_device/device_test.h"

namespace cohort::sim {
namespace {

using SimFaults = SimulatedDeviceTest;

constexpr int64_t kElements = 1000;

c10::Stream new_side_stream() { return c10::impl::VirtualGuardImpl(type()).getNewStream(device(0)); }
c10::Stream main_stream() { return c10::impl::VirtualGuardImpl(type()).getStream(device(0)); }

// Fills a tensor in a side stream and sums it in the main one.
float sum_of_what_a_side_stream_fills(bool waits) {
  const auto side = new_side_stream();
  auto x = at::zeros({kElements}, device(0));
  c10::Event begin(type()), end(type());
  begin.record(main_stream());
  begin.block(side);
  {
    const c10::StreamGuard guard(side);
    x.fill_(1);
  }
  end.record(side);
  if (waits) end.block(main_stream());
  return x.sum().item<float>();
}

TEST_F(SimFaults, AWaitOrdersTwoStreams) { EXPECT_EQ(sum_of_what_a_side_stream_fills(true), kElements); }

TEST_F(SimFaults, ADroppedWaitIsNoticed) {
  if (!requested_schedule().sides_are_late) return;  // an eager stream may happen to be in time
  run_late_work_on_demand_only();
  EXPECT_NE(sum_of_what_a_side_stream_fills(false), kElements);
}

// Reads a tensor in a side stream, frees it, and lets the main stream have the memory.
float sum_while_the_memory_is_given_on(bool records) {
  const auto side = new_side_stream();
  const auto sum = at::zeros({}, device(0));
  auto x = at::ones({kElements}, device(0));
  synchronize();
  {
    const c10::StreamGuard guard(side);
    sum.copy_(x.sum());
  }
  if (records) x.record_stream(side);
  x.reset();
  const auto next = at::zeros({kElements}, device(0));
  main_stream().synchronize();
  side.synchronize();
  return sum.item<float>();
}

TEST_F(SimFaults, ARecordedUseKeepsTheMemory) { EXPECT_EQ(sum_while_the_memory_is_given_on(true), kElements); }

TEST_F(SimFaults, EarlyReuseIsNoticed) {
  if (!requested_schedule().sides_are_late) return;  // the reuse must be the earlier one
  run_late_work_on_demand_only();
  EXPECT_NE(sum_while_the_memory_is_given_on(false), kElements);
}

TEST_F(SimFaults, FreedMemoryIsFilledWithNaN) {
  const auto* const address = [] {
    const auto x = at::ones({kElements}, device(0));
    return x.const_data_ptr();
  }();
  const auto next = at::empty({kElements}, device(0));
  ASSERT_EQ(next.const_data_ptr(), address);
  EXPECT_TRUE(next.isnan().all().item<bool>());
}

TEST_F(SimFaults, TwoDevicesInOneOperatorMessage) {
  const auto name = [](int index) { return device(index).str(); };
  const auto text = "Expected all tensors to be on the same device, but found at least two devices, " + name(0) +
                    " and " + name(1) + "!";
  const auto message_of = [](const auto& fn) { return test::error_of(fn).substr(0, test::error_of(fn).find('!') + 1); };
  EXPECT_EQ(message_of([] { at::mm(at::ones({2, 2}, device(0)), at::ones({2, 2}, device(1))); }), text);
  EXPECT_EQ(message_of([] { at::ones({2}, device(0)).add_(at::ones({2}, device(1))); }), text);
  EXPECT_THROW(at::mm(at::ones({2, 2}, device(0)), at::ones({2, 2})), c10::Error);
  EXPECT_THROW(at::add(at::ones({2}, device(0)), at::ones({2})), c10::Error);
}

TEST_F(SimFaults, AnErrorOfAKernelShowsAtTheNextSynchronization) {
  const auto no_class = at::full({1}, 7, at::dtype(at::kLong).device(device(0)));
  const auto x = at::zeros({1, 3}, device(0));
  EXPECT_NO_THROW(at::nll_loss(x, no_class));
  EXPECT_THROW(main_stream().synchronize(), c10::Error);
  EXPECT_NO_THROW(main_stream().synchronize());
}

TEST_F(SimFaults, ADeviceThatIsNotThereMessage) {
  EXPECT_EQ(test::error_of([] { install(Place::kPrivateUse1, 1); }), "sim::install() was called twice");
  const c10::impl::VirtualGuardImpl guard(type());
  EXPECT_EQ(test::error_of([&] { guard.setDevice(device(kMaxDevices)); }),
            "there is no simulated device 8; there are 8");
}

// Volatile, so that the read stays.
COHORT_WORKER(host_reads_a_device) {
  install_requested_devices();
  const auto x = at::ones({4}, device(1));
  synchronize();
  const volatile float* const address = x.const_data_ptr<float>();
  REQUIRE(*address == 1);
}

TEST_F(SimFaults, HostAccessEndsInASegmentationFault) {
  const auto ranks = test::run_workers("host_reads_a_device", {.world_size = 1});
  EXPECT_EQ(ranks[0].exit_code, -SIGSEGV);
}

}  // namespace
}  // namespace cohort::sim
