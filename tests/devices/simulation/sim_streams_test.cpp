// Streams, events, pinned memory and futures of the simulated devices, by LibTorch's own interfaces.
#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <thread>

#include "tests/devices/in_stream.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

using SimStreams = SimulatedDeviceTest;
using std::chrono::milliseconds;

const auto kPinned = at::TensorOptions().pinned_memory(true);

TEST_F(SimStreams, TheDevicesAreTheAccelerator) {
  EXPECT_EQ(at::getAccelerator(), type());
  EXPECT_EQ(at::accelerator::deviceCount(), kMaxDevices);
  const auto x = at::ones({2}, device(3));
  EXPECT_EQ(x.device().str(), type() == at::kCUDA ? "cuda:3" : "sim:3");
  EXPECT_EQ(x.is_cuda(), type() == at::kCUDA);
  EXPECT_EQ(c10::Device(device(3).str()), device(3));
}

TEST_F(SimStreams, LateWorkRunsWhenItIsWaitedForOrAfterItsTime) {
  std::atomic<int> runs{0};
  auto& queue = current_queue(0);
  set_schedule({.default_is_late = true, .patience = std::chrono::hours(1)});
  const auto number = queue.push([&] { ++runs; });
  EXPECT_EQ(runs, 0);
  EXPECT_FALSE(queue.is_done(number));
  queue.wait(number);
  EXPECT_EQ(runs, 1);
  set_schedule({.default_is_late = true, .patience = milliseconds(1)});
  queue.push([&] { ++runs; });
  while (runs < 2) std::this_thread::yield();  // nobody waits for it
}

TEST_F(SimStreams, EventsKeepTime) {
  c10::Event first(type(), c10::EventFlag::BACKEND_DEFAULT), second(type(), c10::EventFlag::BACKEND_DEFAULT);
  std::atomic<bool> may_end{false};
  const auto stream = current_stream(0);
  first.record(stream);
  queue_of(stream).push([&] {
    while (!may_end) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(20));
  });
  second.record(stream);
  EXPECT_FALSE(second.query());
  may_end = true;
  second.synchronize();
  EXPECT_TRUE(second.query());
  EXPECT_GE(first.elapsedTime(second), 20);
}

TEST_F(SimStreams, PinnedMemoryIsReadWhenTheCopyRuns) {
  run_late_work_on_demand_only();
  const auto pinned = at::ones({100}, kPinned), pageable = at::ones({100});
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(pageable.pin_memory().is_pinned());
  EXPECT_FALSE(pageable.is_pinned());
  const auto from_pinned = pinned.to(device(1), /*non_blocking=*/true);
  const auto from_pageable = pageable.to(device(1), /*non_blocking=*/true);
  pinned.fill_(5);
  pageable.fill_(5);
  EXPECT_EQ(from_pageable.sum().item<float>(), 100);
  if (requested_schedule().default_is_late) {
    EXPECT_EQ(from_pinned.sum().item<float>(), 500);
  }
}

TEST_F(SimStreams, PinnedMemoryIsWrittenWhenTheCopyRuns) {
  run_late_work_on_demand_only();
  const auto source = at::ones({100}, device(1));
  const auto destination = at::zeros({100}, kPinned);
  destination.copy_(source, /*non_blocking=*/true);
  if (requested_schedule().default_is_late) {
    EXPECT_EQ(destination.sum().item<float>(), 0);
  }
  synchronize();
  EXPECT_EQ(destination.sum().item<float>(), 100);
}

TEST_F(SimStreams, PinnedMemoryOutlivesTheCopiesThatUseIt) {
  auto pinned = at::ones({100}, kPinned);
  const auto copied = pinned.to(device(1), /*non_blocking=*/true);
  pinned.reset();
  const auto next = at::zeros({100}, kPinned);
  EXPECT_EQ(copied.sum().item<float>(), 100);
}

// A backward function runs in the stream of its forward function, and the engine orders the streams.
TEST_F(SimStreams, BackwardRunsInTheStreamsOfForward) {
  const auto side = new_stream(0);
  const auto weight = at::full({500}, 2.0, device(0)).requires_grad_(true);
  std::optional<c10::StreamId> seen;
  at::Tensor y;
  {
    const InStream in(side);
    y = weight * weight;
    y.register_hook([&](const at::Tensor&) { seen = current_stream(0).id(); });
  }
  (y * 3).sum().backward();
  EXPECT_TRUE(weight.grad().cpu().equal(at::full({500}, 12.0)));
  EXPECT_EQ(seen, side.id());
}

TEST_F(SimStreams, AFutureOrdersStreams) {
  const auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), std::vector<c10::Device>{device(0)});
  const auto side = new_stream(0);
  const auto x = at::zeros({100}, device(0));
  synchronize();
  {
    const c10::StreamGuard guard(side);
    x.add_(1);
    future->markCompleted(x);
  }
  future->wait();
  EXPECT_EQ(future->value().toTensor().sum().item<float>(), 100);
}

TEST_F(SimStreams, CopiesBetweenDevicesAreOrderedOnBothSides) {
  const auto source = at::zeros({1000}, device(0)), destination = at::zeros({1000}, device(1));
  destination.fill_(2);  // before the copy
  source.fill_(1);
  destination.copy_(source, /*non_blocking=*/true);
  EXPECT_EQ(destination.sum().item<float>(), 1000);
}

}  // namespace
}  // namespace cohort::sim
