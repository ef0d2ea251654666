// PerDeviceBackend: every operation reaches the backend of its tensors' device. The second device is "meta", whose tensors
// every machine has.
#include "cohort/comm/backend/per_device_backend.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cohort::comm {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using ::testing::ElementsAre;

std::vector<std::string>* calls = nullptr;

class FinishedWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

// Writes down what it is asked to do.
class Recorder final : public c10d::Backend {
 public:
  Recorder(std::string name, bool coalesces) : Backend(0, 1), name_(std::move(name)), coalesces_(coalesces) {}

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override { return note("broadcast"); }
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override { return note("allreduce"); }
  WorkPtr allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) override { return note("allreduce_sparse"); }
  WorkPtr allreduce_coalesced(Tensors&, const c10d::AllreduceCoalescedOptions&) override {
    return note("allreduce_coalesced");
  }
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override { return note("reduce"); }
  WorkPtr allgather(std::vector<Tensors>&, Tensors&, const c10d::AllgatherOptions&) override {
    return note("allgather");
  }
  WorkPtr _allgather_base(at::Tensor&, at::Tensor&, const c10d::AllgatherOptions&) override {
    return note("_allgather_base");
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>&, Tensors&, const c10d::AllgatherOptions&) override {
    return note("allgather_coalesced");
  }
  WorkPtr allgather_into_tensor_coalesced(Tensors&, Tensors&, const c10d::AllgatherOptions&) override {
    return note("allgather_into_tensor_coalesced");
  }
  WorkPtr gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) override { return note("gather"); }
  WorkPtr scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) override { return note("scatter"); }
  WorkPtr reduce_scatter(Tensors&, std::vector<Tensors>&, const c10d::ReduceScatterOptions&) override {
    return note("reduce_scatter");
  }
  WorkPtr _reduce_scatter_base(at::Tensor&, at::Tensor&, const c10d::ReduceScatterOptions&) override {
    return note("_reduce_scatter_base");
  }
  WorkPtr reduce_scatter_tensor_coalesced(Tensors&, Tensors&, const c10d::ReduceScatterOptions&) override {
    return note("reduce_scatter_tensor_coalesced");
  }
  WorkPtr alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&, std::vector<int64_t>&,
                        const c10d::AllToAllOptions&) override {
    return note("alltoall_base");
  }
  WorkPtr alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) override { return note("alltoall"); }
  WorkPtr send(Tensors&, int, int) override { return note("send"); }
  WorkPtr recv(Tensors&, int, int) override { return note("recv"); }
  WorkPtr recvAnysource(Tensors&, int) override { return note("recvAnysource"); }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return note("barrier"); }
  void monitoredBarrier(const c10d::BarrierOptions&, bool) override { note("monitoredBarrier"); }
  bool supportsCoalescing() const override { return coalesces_; }
  void startCoalescing() override { note("startCoalescing"); }
  WorkPtr endCoalescing() override { return note("endCoalescing"); }
  void setTimeout(std::chrono::milliseconds) override { note("setTimeout"); }
  void setSequenceNumberForGroup() override { note("setSequenceNumberForGroup"); }
  uint64_t getSequenceNumberForGroup() override { return 7; }
  void abort() override { note("abort"); }
  void shutdown() override { note("shutdown"); }

 private:
  WorkPtr note(const char* operation) {
    calls->push_back(name_ + " " + operation);
    return c10::make_intrusive<FinishedWork>();
  }

  const std::string name_;
  const bool coalesces_;
};

class DeviceProcessGroupTest : public ::testing::Test {
 protected:
  DeviceProcessGroupTest() { calls = &calls_; }
  ~DeviceProcessGroupTest() override { calls = nullptr; }

  std::vector<std::string> take() { return std::exchange(calls_, {}); }

  // All operations with tensors, in the order of Backend.hpp.
  void call_all(const at::Tensor& tensor) {
    Tensors list{tensor};
    std::vector<Tensors> lists{list};
    auto one = tensor;
    std::vector<int64_t> splits;
    group_.broadcast(list, {});
    group_.allreduce(list, {});
    group_.allreduce_sparse(list, {});
    group_.allreduce_coalesced(list, {});
    group_.reduce(list, {});
    group_.allgather(lists, list, {});
    group_._allgather_base(one, one, {});
    group_.allgather_coalesced(lists, list, {});
    group_.allgather_into_tensor_coalesced(list, list, {});
    group_.gather(lists, list, {});
    group_.scatter(list, lists, {});
    group_.reduce_scatter(list, lists, {});
    group_._reduce_scatter_base(one, one, {});
    group_.reduce_scatter_tensor_coalesced(list, list, {});
    group_.alltoall_base(one, one, splits, splits, {});
    group_.alltoall(list, list, {});
    group_.send(list, 0, 0);
    group_.recv(list, 0, 0);
    group_.recvAnysource(list, 0);
  }

  std::vector<std::string> calls_;
  PerDeviceBackend group_{"both",
                          {{c10::DeviceType::CPU, c10::make_intrusive<Recorder>("cpu", false)},
                           {c10::DeviceType::Meta, c10::make_intrusive<Recorder>("meta", true)}},
                          std::chrono::seconds(5)};
  const at::Tensor on_cpu_ = at::zeros(2);
  const at::Tensor on_meta_ = at::zeros(2, at::device(at::kMeta));
};

TEST_F(DeviceProcessGroupTest, EveryOperationReachesTheBackendOfItsDevice) {
  const std::vector<std::string> operations{"broadcast",
                                            "allreduce",
                                            "allreduce_sparse",
                                            "allreduce_coalesced",
                                            "reduce",
                                            "allgather",
                                            "_allgather_base",
                                            "allgather_coalesced",
                                            "allgather_into_tensor_coalesced",
                                            "gather",
                                            "scatter",
                                            "reduce_scatter",
                                            "_reduce_scatter_base",
                                            "reduce_scatter_tensor_coalesced",
                                            "alltoall_base",
                                            "alltoall",
                                            "send",
                                            "recv",
                                            "recvAnysource"};
  for (const auto& [name, tensor] : {std::pair("cpu ", on_cpu_), std::pair("meta ", on_meta_)}) {
    call_all(tensor);
    std::vector<std::string> expected;
    for (const auto& operation : operations) expected.push_back(name + operation);
    EXPECT_EQ(take(), expected);
  }
}

TEST_F(DeviceProcessGroupTest, ABarrierGoesToTheNamedDeviceElseToTheFirst) {
  group_.barrier({});
  c10d::BarrierOptions on_meta;
  on_meta.device = at::Device(at::kMeta, 0);
  group_.barrier(on_meta);
  c10d::BarrierOptions elsewhere;
  elsewhere.device = at::Device(at::kXPU, 0);
  group_.barrier(elsewhere);
  group_.monitoredBarrier({}, false);
  EXPECT_THAT(take(), ElementsAre("cpu barrier", "meta barrier", "cpu barrier", "cpu monitoredBarrier"));
}

TEST_F(DeviceProcessGroupTest, WhatHasNoTensorReachesAll) {
  group_.setTimeout(std::chrono::seconds(9));
  group_.setSequenceNumberForGroup();
  group_.abort();
  group_.shutdown();
  EXPECT_THAT(take(), ElementsAre("cpu setTimeout", "meta setTimeout", "cpu setSequenceNumberForGroup",
                                  "meta setSequenceNumberForGroup", "cpu abort", "meta abort", "cpu shutdown",
                                  "meta shutdown"));
  EXPECT_EQ(group_.getBackendOptions()->timeout, std::chrono::seconds(9));
  EXPECT_EQ(group_.getSequenceNumberForGroup(), 7);
  EXPECT_EQ(group_.getBackendName(), "both");
}

// c10d names no device when it begins; Gloo and shm cannot coalesce, NCCL must.
TEST_F(DeviceProcessGroupTest, CoalescingBeginsWhereItIsUsed) {
  EXPECT_TRUE(group_.supportsCoalescing());
  Tensors cpu{on_cpu_};
  Tensors meta{on_meta_};
  group_.startCoalescing();
  group_.send(cpu, 0, 0);
  group_.send(meta, 0, 0);
  group_.recv(meta, 0, 0);
  const auto work = group_.endCoalescing();
  EXPECT_THAT(take(), ElementsAre("cpu send", "meta startCoalescing", "meta send", "meta recv", "meta endCoalescing"));
  EXPECT_TRUE(work->isCompleted());

  group_.startCoalescing();
  EXPECT_FALSE(group_.endCoalescing());
  EXPECT_THAT(take(), ElementsAre());
}

TEST_F(DeviceProcessGroupTest, ATensorOfAnotherDeviceIsRefused) {
  PerDeviceBackend group("cohort", {{c10::DeviceType::CPU, c10::make_intrusive<Recorder>("cpu", false)}},
                         std::chrono::seconds(5));
  Tensors meta{on_meta_};
  try {
    group.allreduce(meta, {});
    FAIL() << "nothing was thrown";
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "[cohort] all_reduce: backend \"cohort\" of this group serves cpu tensors, got one on meta");
  }
  Tensors none;
  EXPECT_THROW(group.allreduce(none, {}), c10::ValueError);
  EXPECT_FALSE(group.supportsCoalescing());
}

}  // namespace
}  // namespace cohort::comm
