// NCCL on the machine's own GPU, as one rank: NCCL wants a GPU for each. Where there are several, it serves the tests beside
// this one.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/coalescing.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/group/device.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/comm/registry/backend_registry.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

class NcclDevices : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!is_real() || type() != at::kCUDA || !is_nccl_available()) GTEST_SKIP() << "needs a GPU and NCCL";
  }
};

constexpr int64_t kValues = 1000;

at::Tensor some_values(at::ScalarType dtype) {
  return at::arange(kValues, at::kLong).remainder(100).to(cohort::current_device(), dtype);
}

using Exchange = std::function<at::Tensor(const at::Tensor& input, const Group& group)>;
using Exchanges = std::vector<std::pair<const char*, Exchange>>;

// Of one rank each gives its input.
const Exchanges& exchanges_in_place() {
  static const Exchanges all{{"all_reduce",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = x.clone();
                                for (const auto op : {ReduceOp::SUM, ReduceOp::MAX, ReduceOp::MIN, ReduceOp::PRODUCT}) {
                                  all_reduce(y, {.op = op, .group = group});
                                }
                                return y;
                              }},
                             {"broadcast",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = x.clone();
                                broadcast(y, 0, {.group = group});
                                return y;
                              }},
                             {"reduce",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = x.clone();
                                reduce(y, 0, {.group = group});
                                return y;
                              }},
                             {"coalesced", [](const at::Tensor& x, const Group& group) {
                                const std::vector<at::Tensor> ys{x.clone(), at::ones_like(x)};
                                CoalescingManager together({.group = group});
                                for (const auto& y : ys) all_reduce(y, {.group = group});
                                together.finish();
                                return ys[0] * ys[1];
                              }}};
  return all;
}

const Exchanges& exchanges_of_two_tensors() {
  static const Exchanges all{{"all_gather",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = at::zeros_like(x);
                                all_gather({y}, x, {.group = group});
                                return y;
                              }},
                             {"all_gather_single",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = at::zeros_like(x);
                                all_gather_single(y, x, {.group = group});
                                return y;
                              }},
                             {"gather",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = at::zeros_like(x);
                                gather(x, {y}, 0, {.group = group});
                                return y;
                              }},
                             {"scatter",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = at::zeros_like(x);
                                scatter(y, {x}, 0, {.group = group});
                                return y;
                              }},
                             {"reduce_scatter",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = at::zeros_like(x);
                                reduce_scatter(y, {x}, {.group = group});
                                return y;
                              }},
                             {"reduce_scatter_single",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = at::zeros_like(x);
                                reduce_scatter_single(y, x, {.group = group});
                                return y;
                              }},
                             {"all_to_all",
                              [](const at::Tensor& x, const Group& group) {
                                const auto y = at::zeros_like(x);
                                all_to_all({y}, {x}, {.group = group});
                                return y;
                              }},
                             {"all_to_all_single", [](const at::Tensor& x, const Group& group) {
                                const auto y = at::zeros_like(x);
                                all_to_all_single(y, x, {}, {}, {.group = group});
                                return y;
                              }}};
  return all;
}

void require_exchanges(const Group& group) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kLong, at::kInt, at::kByte}) {
    const auto x = some_values(dtype);
    for (const auto* const exchanges : {&exchanges_in_place(), &exchanges_of_two_tensors()}) {
      for (const auto& [name, exchange] : *exchanges) {
        if (!at::equal(exchange(x, group), x)) throw std::runtime_error(c10::str(name, " of ", dtype));
      }
    }
  }
  const auto mean = some_values(at::kFloat);
  all_reduce(mean, {.op = ReduceOp::AVG, .group = group});
  REQUIRE(at::equal(mean, some_values(at::kFloat)));
  all_reduce(mean, {.op = premul_sum(0.5), .group = group});
  REQUIRE(at::equal(mean, some_values(at::kFloat) / 2));
  barrier({.group = group});
}

// wait() lets the stream wait, and the host may go on.
void require_waits_of_streams(const Group& group) {
  const c10::StreamGuard side(new_stream(cohort::current_device().index()));
  for (int i = 0; i < 20; ++i) {
    const auto x = at::full({1 << 22}, 1.0, cohort::current_device());
    const auto work = all_reduce(x, {.group = group, .async_op = true});
    REQUIRE(work);
    work->wait();
    const auto doubled = x * 2;
    x.zero_();
    REQUIRE(doubled.eq(2).all().item<bool>());
    REQUIRE(work->isCompleted());
  }
}

COHORT_WORKER(nccl_collectives) {
  install_requested_devices();
  init_process_group();
  REQUIRE_EQUAL(get_backend_config(), "cuda:nccl");
  REQUIRE_EQUAL(get_backend(), "nccl");
  require_exchanges({});
  require_waits_of_streams({});
  ObjectList objects(1);
  all_gather_object(objects, c10::IValue("seven"));
  REQUIRE_EQUAL(objects[0].toStringRef(), "seven");
  for (const char* const backend : {"nccl", "cpu:gloo,cuda:nccl", "cpu:shm,cuda:nccl", "cohort"}) {
    require_exchanges(new_group({}, {.backend = backend}));
  }
  const auto both = new_group({}, {.backend = "cpu:gloo,cuda:nccl"});
  const auto on_cpu = at::ones({4});
  all_reduce(on_cpu, {.group = both});
  REQUIRE(on_cpu.eq(1).all().item<bool>());
  REQUIRE_EQUAL(test::error_of([&] { all_reduce(on_cpu); }).substr(0, 33),
                "[cohort] all_reduce got a tensor on cpu, b");
  destroy_process_group();
}

TEST_F(NcclDevices, EveryOperationOfOneRank) {
  test::run_workers("nccl_collectives", {.world_size = 1}).expect_success();
}

COHORT_WORKER(nccl_of_a_device) {
  install_requested_devices();
  init_process_group({.backend = "nccl", .device_id = cohort::current_device()});
  require_exchanges({});
  require_exchanges(split_group({}, {{0}}));
  destroy_process_group();
  init_process_group({.backend = "cohort", .device_id = cohort::current_device()});
  require_exchanges({});
  const auto on_cpu = at::ones({4});
  all_reduce(on_cpu);
  destroy_process_group();
}

TEST_F(NcclDevices, ADeviceIdConnectsAtOnceAndSplits) {
  test::run_workers("nccl_of_a_device", {.world_size = 1}).expect_success();
}

COHORT_WORKER(two_ranks_of_one_gpu) {
  install_requested_devices();
  std::cout << test::error_of([] {
    init_process_group({.backend = "cohort", .timeout = std::chrono::seconds(20), .device_id = device(0)});
    const auto x = some_values(at::kFloat);
    all_reduce(x);
    (void)x.cpu();
  }) << std::endl;
  std::_Exit(0);  // NCCL has failed, and may wait for the other rank
}

TEST_F(NcclDevices, TwoRanksOfOneGpuMessage) {
  const auto results = test::run_workers("two_ranks_of_one_gpu");
  for (const int rank : {0, 1}) {
    EXPECT_NE(results[rank].output.find("GPU"), std::string::npos) << results[rank].output << results[rank].errors;
    std::cout << results[rank].output;
  }
}

}  // namespace
}  // namespace cohort::sim
