// The backend that imitates NCCL: every operation, and the waits that a user of NCCL must not forget.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cohort/comm/collectives/collectives.h"
#include "tests/support/require.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

using SimBackend = SimulatedDeviceTest;

at::Tensor rank_values(int rank, c10::Device device) { return at::arange(4, device).to(at::kFloat) + 10 * rank; }

bool holds(const at::Tensor& tensor, const std::vector<float>& values) {
  return tensor.flatten().cpu().equal(at::tensor(values));
}

TEST_F(SimBackend, CollectivesOnEachDevice) {
  run_ranks_with_devices(2, [](int rank, const Group& group, const RankDevices& devices) {
    for (const auto device : {devices.first, devices.second}) {
      const auto sum = rank_values(rank, device);
      all_reduce(sum, {.group = group});
      REQUIRE(holds(sum, {10, 12, 14, 16}));
      const auto mean = rank_values(rank, device);
      all_reduce(mean, {.op = ReduceOp::AVG, .group = group});
      REQUIRE(holds(mean, {5, 6, 7, 8}));
      const auto first = rank_values(rank, device);
      broadcast(first, group_rank(1), {.group = group});
      REQUIRE(holds(first, {10, 11, 12, 13}));
      const auto gathered = at::empty({8}, device);
      all_gather_into_tensor(gathered, rank_values(rank, device), {.group = group});
      REQUIRE(holds(gathered, {0, 1, 2, 3, 10, 11, 12, 13}));
      const auto share = at::empty({2}, device);
      reduce_scatter_tensor(share, rank_values(rank, device), {.group = group});
      REQUIRE(holds(share, rank == 0 ? std::vector<float>{10, 12} : std::vector<float>{14, 16}));
      const auto part = at::empty({4}, device);
      std::vector<at::Tensor> parts;
      if (rank == 1) parts = {rank_values(5, device), rank_values(6, device)};
      scatter(part, parts, group_rank(1), {.group = group});
      REQUIRE(holds(part, rank == 0 ? std::vector<float>{50, 51, 52, 53} : std::vector<float>{60, 61, 62, 63}));
    }
    const auto on_cpu = rank_values(rank, at::kCPU);
    all_reduce(on_cpu, {.group = group});
    REQUIRE(holds(on_cpu, {10, 12, 14, 16}));
  });
}

TEST_F(SimBackend, SendAndReceiveBetweenThreeRanks) {
  run_ranks_with_devices(3, [](int rank, const Group& group, const RankDevices& devices) {
    const auto received = at::zeros({4}, devices.first);
    std::vector<at::Tensor> outgoing{rank_values(rank, devices.first)}, incoming{received};
    const auto backend = group->getBackend(type());
    const auto work = backend->send(outgoing, (rank + 1) % 3, /*tag=*/0);
    backend->recv(incoming, (rank + 2) % 3, /*tag=*/0)->wait();
    work->wait();
    REQUIRE(received.cpu().equal(rank_values((rank + 2) % 3, at::kCPU)));
  });
}

// The host does not wait, the current stream does.
TEST_F(SimBackend, ADroppedWaitIsNoticed) {
  run_late_work_on_demand_only();
  run_ranks_with_devices(2, [](int rank, const Group& group, const RankDevices& devices) {
    const auto sum_after = [&](bool waits) {
      const auto x = rank_values(rank, devices.first);
      const auto work = all_reduce(x, {.group = group, .async_op = true});
      if (waits) work->wait();
      const auto seen = x.clone();
      work->wait();
      return seen;
    };
    REQUIRE(holds(sum_after(true), {10, 12, 14, 16}));
    const auto seen = sum_after(false);
    if (requested_schedule().sides_are_late) REQUIRE(!holds(seen, {10, 12, 14, 16}));
  });
}

TEST_F(SimBackend, TensorsOfTwoDevicesAreRefusedMessage) {
  run_ranks_with_devices(1, [](int, const Group& group, const RankDevices& devices) {
    std::vector<at::Tensor> tensors{at::ones({2}, devices.first), at::ones({2}, devices.second)};
    REQUIRE_EQUAL(test::error_of([&] { group->getBackend(type())->allreduce(tensors); }),
                  "Expected the tensors of a collective on one device, got " + devices.first.str() + " and " +
                      devices.second.str());
  });
}

}  // namespace
}  // namespace cohort::sim
