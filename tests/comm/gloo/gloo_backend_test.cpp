#include "cohort/comm/gloo/make_gloo_backend.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cmath>
#include <limits>
#include <mutex>

#include "cohort/base/system/env.h"
#include "cohort/comm/tensors/operation_text.h"
#include "cohort/comm/watch/operation_watch.h"
#include "tests/support/marks.h"
#include "tests/support/rank_threads.h"

BACKEND_OF_FILE(gloo)

namespace cohort::comm {
namespace {

using job::Operation;
using test::run_rank_threads;
using testing::ElementsAre;
using Tensors = std::vector<at::Tensor>;
using Body = std::function<void(c10d::Backend&)>;

void run_ranks(int world_size, const Body& body, const test::RankThreadsOptions& options = {}) {
  run_rank_threads(
      world_size, [&](int, const Group& group) { body(*group->getBackend(c10::DeviceType::CPU)); }, options);
}

void expect_equal(const at::Tensor& actual, const at::Tensor& expected) {
  TORCH_CHECK(actual.scalar_type() == expected.scalar_type() && at::equal(actual, expected), "expected ", expected,
              ", got ", actual);
}

std::string this_host() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

template <class ErrorType>
std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what_without_backtrace();
  }
  throw std::runtime_error("no error");
}

template <class EngineOptions>
EngineOptions with_op(const c10d::ReduceOp& op) {
  EngineOptions options;
  options.reduceOp = op;
  return options;
}

template <class Factor>
c10d::ReduceOp premul_sum(const Factor& factor) {
  c10d::ReduceOp op;
  op.op_ = c10d::ReduceOp::PREMUL_SUM;
  op.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(factor);
  return op;
}

at::Tensor all_reduced(c10d::Backend& backend, at::Tensor tensor, const c10d::ReduceOp& op) {
  Tensors tensors{tensor};
  backend.allreduce(tensors, with_op<c10d::AllreduceOptions>(op))->wait();
  return tensors[0];
}

TEST(GlooBackend, MultipliesByAScalarOrATensorBeforeTheSum) {
  run_ranks(2, [](c10d::Backend& backend) {
    const double factor = backend.getRank() + 1.0;
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kComplexFloat, at::kInt, at::kUInt16}) {
      const auto ones = at::ones({3}, at::kInt).to(dtype);
      const auto expected = at::full({3}, 3, at::kInt).to(dtype);
      expect_equal(all_reduced(backend, ones.clone(), premul_sum(factor)), expected);
      expect_equal(all_reduced(backend, ones.clone(), premul_sum(at::scalar_tensor(factor))), expected);
    }
    expect_equal(all_reduced(backend, at::ones({3}), premul_sum(0.5)), at::ones({3}));
  });
}

TEST(GlooBackend, LeavesInputsOfReduceScatterAlone) {
  run_ranks(2, [](c10d::Backend& backend) {
    auto input = at::arange(4, at::kFloat);
    auto output = at::empty({2});
    backend._reduce_scatter_base(output, input, with_op<c10d::ReduceScatterOptions>(premul_sum(2.0)))->wait();
    expect_equal(input, at::arange(4, at::kFloat));
    expect_equal(output, at::arange(4, at::kFloat).narrow(0, 2 * backend.getRank(), 2) * 4);
  });
}

TEST(GlooBackend, AveragesIntegersTowardZeroWithoutOverflow) {
  run_ranks(2, [](c10d::Backend& backend) {
    const auto input =
        backend.getRank() == 0 ? at::tensor({-3, 3, 100}, at::kChar) : at::tensor({0, 0, 101}, at::kChar);
    expect_equal(all_reduced(backend, input, c10d::ReduceOp::AVG), at::tensor({-1, 1, 100}, at::kChar));
    const auto large = at::full({1}, -2, at::kLong).view(at::kUInt64);  // 2^64 - 2
    const auto small = at::zeros({1}, at::kLong).view(at::kUInt64);
    const auto average = all_reduced(backend, backend.getRank() == 0 ? large : small, c10d::ReduceOp::AVG);
    expect_equal(average.view(at::kLong), at::full({1}, std::numeric_limits<int64_t>::max()));
  });
}

TEST(GlooBackend, SumOfBoolsIsABool) {
  run_ranks(3, [](c10d::Backend& backend) {
    const auto sum = all_reduced(backend, at::ones({3}, at::kBool), c10d::ReduceOp::SUM);
    expect_equal(sum.view(at::kByte), at::ones({3}, at::kByte));
  });
}

TEST(GlooBackend, ReducesParametersThatRequireGradients) {
  run_ranks(2, [](c10d::Backend& backend) {
    const auto parameter = at::ones({2, 2}).t().requires_grad_();
    expect_equal(all_reduced(backend, parameter, c10d::ReduceOp::AVG).detach(), at::ones({2, 2}));
    const auto strided = at::ones({4}).slice(0, 0, 4, 2).requires_grad_();
    expect_equal(all_reduced(backend, strided, c10d::ReduceOp::SUM).detach(), at::full({2}, 2.0));
  });
}

TEST(GlooBackend, TakesTensorsWithoutDimensions) {
  run_ranks(2, [](c10d::Backend& backend) {
    auto mine = at::scalar_tensor(backend.getRank() + 1.0);
    auto both = at::empty({2});
    backend._allgather_base(both, mine)->wait();
    expect_equal(both, at::tensor({1.0F, 2.0F}));
    auto sum = at::scalar_tensor(0.0);
    backend._reduce_scatter_base(sum, both)->wait();
    expect_equal(sum, at::scalar_tensor(2.0 * mine.item<double>()));
    auto stacked = at::empty({2, 1});
    backend._allgather_base(stacked, mine)->wait();
    expect_equal(stacked, at::tensor({1.0F, 2.0F}).view({2, 1}));
  });
}

TEST(GlooBackend, CoalescesMixedDtypes) {
  run_ranks(2, [](c10d::Backend& backend) {
    Tensors inputs{at::ones({3}, at::kChar), at::full({2}, 1.5, at::kDouble)};
    Tensors outputs{at::empty({6}, at::kChar), at::empty({4}, at::kDouble)};
    backend.allgather_into_tensor_coalesced(outputs, inputs)->wait();
    expect_equal(outputs[0], at::ones({6}, at::kChar));
    expect_equal(outputs[1], at::full({4}, 1.5, at::kDouble));
    Tensors sums{at::empty({2}), at::empty({1}, at::kShort)};
    Tensors wholes{at::ones({4}), at::ones({2}, at::kShort)};
    const auto work = backend.reduce_scatter_tensor_coalesced(sums, wholes);
    work->wait();
    expect_equal(sums[0], at::full({2}, 2.0F));
    expect_equal(sums[1], at::full({1}, 2, at::kShort));
    EXPECT_TRUE(work->result().at(1).is_same(sums[1]));
  });
}

TEST(GlooBackend, SaysWhichReductionsMakeNoSenseMessage) {
  run_ranks(1, [](c10d::Backend& backend) {
    const auto error = [&](at::ScalarType dtype, const c10d::ReduceOp& op) {
      return error_of<c10::ValueError>([&] { all_reduced(backend, at::ones({2}, dtype), op); });
    };
    EXPECT_EQ(error(at::kFloat, c10d::ReduceOp::BAND),
              "[cohort] all_reduce: Cannot use ReduceOp.BAND with non-integral dtype float32");
    EXPECT_EQ(error(at::kComplexFloat, c10d::ReduceOp::MIN),
              "[cohort] all_reduce does not support ReduceOp.MIN on complex tensors, got complex64");
    EXPECT_EQ(error(at::kBool, c10d::ReduceOp::AVG),
              "[cohort] all_reduce does not support ReduceOp.AVG on bool tensors");
    EXPECT_EQ(error(at::kInt, premul_sum(0.5)),
              "[cohort] all_reduce: ReduceOp.PREMUL_SUM on int32 needs a whole factor, got 0.5");
  });
}

TEST(GlooBackend, RefusesWhatWouldHangOrCrashMessage) {
  run_ranks(2, [](c10d::Backend& backend) {
    const int rank = backend.getRank();
    Tensors one{at::ones({2})};
    Tensors none{at::ones({0})};
    Tensors nothing;
    auto scalar = at::scalar_tensor(1.0);
    std::vector<int64_t> no_splits;
    EXPECT_EQ(error_of<c10::ValueError>([&] { backend.send(one, 5, 0); }),
              "[cohort] send: rank 5 is out of range. Valid ranks are 0 to 1 (world_size=2)");
    EXPECT_EQ(error_of<c10::ValueError>([&] { backend.recv(one, rank, 0); }),
              "[cohort] recv: a rank cannot recv from itself");
    EXPECT_EQ(error_of<c10::ValueError>([&] { backend.recvAnysource(none, 0); }),
              "[cohort] recv from any source needs a tensor with elements on Gloo; name the source to receive none");
    EXPECT_EQ(error_of<c10::ValueError>([&] { backend.allreduce(nothing); }),
              "[cohort] all_reduce needs at least one tensor");
    EXPECT_EQ(error_of<c10::ValueError>([&] { backend.alltoall_base(scalar, scalar, no_splits, no_splits); }),
              "[cohort] all_to_all_single: the output tensor needs at least one dimension");
    EXPECT_EQ(error_of<c10::ValueError>([&] { backend._allgather_base(one[0], one[0]); }),
              "[cohort] all_gather_single needs an output of 4 elements, got 2");
    // Nothing of this was counted: the ranks are still in step.
    backend.allreduce(one)->wait();
    expect_equal(one[0], at::full({2}, 2.0F));
  });
}

TEST(GlooBackend, NanCheckNamesTheElementMessage) {
  base::set_env("TORCH_NCCL_NAN_CHECK", "1");
  run_ranks(1, [](c10d::Backend& backend) {
    Tensors tensors{at::tensor({1.0F, NAN, 2.0F, NAN})};
    EXPECT_EQ(error_of<c10::DistBackendError>([&] { backend.allreduce(tensors); }),
              "[cohort] all_reduce #1 on group \"threads\" failed\n"
              "  rank 0 of 1 on " +
                  this_host() +
                  ", backend gloo, 16 B float32\n"
                  "  caused by: 2 of 4 elements are NaN on this rank, the first at index 1\n"
                  "  hint: look for the step that makes NaN, or turn this check off by unsetting "
                  "TORCH_NCCL_NAN_CHECK");
    Tensors whole{at::ones({2}, at::kLong)};
    backend.allreduce(whole)->wait();
  });
  base::unset_env("TORCH_NCCL_NAN_CHECK");
  run_ranks(1, [](c10d::Backend& backend) { all_reduced(backend, at::tensor({NAN}), c10d::ReduceOp::SUM); });
}

TEST(GlooBackend, NanCheckRefusesAnUnclearSettingMessage) {
  base::set_env("TORCH_NCCL_NAN_CHECK", "perhaps");
  try {
    run_ranks(1, [](c10d::Backend&) {});
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("TORCH_NCCL_NAN_CHECK=\"perhaps\""));
  }
  base::unset_env("TORCH_NCCL_NAN_CHECK");
}

struct RecordingWatch final : OperationWatch {
  void starting(const Operation& operation) override {
    const std::lock_guard lock(mutex);
    lines.push_back(operation.name + (operation.point_to_point ? " p2p #" : " #") + std::to_string(operation.sequence) +
                    " " + operation.dtype + operation.shape + " " + std::to_string(operation.num_bytes) + " B root " +
                    std::to_string(operation.root) + " " + operation.reduce_op);
  }
  std::string find_obstacle(const Operation&) override { return {}; }
  base::Failure explain(const Operation&, base::Failure failure) override { return failure; }
  base::Failure find_cause(const Operation&, base::Failure failure) override { return failure; }
  std::mutex mutex;
  std::vector<std::string> lines;
};

TEST(GlooBackend, TellsTheWatchBeforeTheEngine) {
  const auto recorder = std::make_shared<RecordingWatch>();
  run_ranks(2,
            [](c10d::Backend& backend) {
              all_reduced(backend, at::ones({2, 3}), c10d::ReduceOp::MAX);
              Tensors tensors{at::ones({4}, at::kHalf)};
              c10d::BroadcastOptions options;
              options.rootRank = 1;
              backend.broadcast(tensors, options)->wait();
              (backend.getRank() == 0 ? backend.send(tensors, 1, 0) : backend.recv(tensors, 0, 0))->wait();
              backend.monitoredBarrier({});
              backend.barrier()->wait();
            },
            {.make_backend = [&](BackendRequest request) {
              if (request.rank == 0) request.watch = recorder;
              return make_gloo_backend(request);
            }});
  EXPECT_THAT(recorder->lines, ElementsAre("all_reduce #1 float32[2, 3] 24 B root -1 MAX",
                                           "broadcast #2 float16[4] 8 B root 1 ", "send p2p #1 float16 8 B root 1 ",
                                           "monitored_barrier #3  0 B root -1 ", "barrier #4  0 B root -1 "));
}

TEST(GlooBackend, SequenceNumbersOfTheEngineStayInStep) {
  run_ranks(2, [](c10d::Backend& backend) {
    const auto before = backend.getSequenceNumberForGroup();
    all_reduced(backend, at::ones({2}), c10d::ReduceOp::SUM);
    EXPECT_EQ(backend.getSequenceNumberForGroup(), before + 1);
  });
}

TEST(GlooBackend, MonitoredBarrierKeepsPyTorchsTextMessage) {
  run_ranks(2, [](c10d::Backend& backend) {
    if (backend.getRank() == 1) return;
    c10d::BarrierOptions options;
    options.timeout = std::chrono::milliseconds(200);
    EXPECT_THAT(error_of<c10::DistBackendError>([&] { backend.monitoredBarrier(options, true); }),
                testing::HasSubstr("Ranks 1 failed to pass monitoredBarrier in 200 ms"));
  });
}

TEST(OperationText, NamesAreThoseOfPython) {
  EXPECT_EQ(dtype_name(at::kBFloat16), "bfloat16");
  EXPECT_EQ(dtype_name(at::kComplexDouble), "complex128");
  EXPECT_EQ(dtype_name(at::kUInt16), "uint16");
  EXPECT_EQ(dtype_name(at::kFloat8_e4m3fn), "float8_e4m3fn");
  EXPECT_EQ(shape_text({2, 3}), "[2, 3]");
  EXPECT_EQ(shape_text({}), "[]");
}

}  // namespace
}  // namespace cohort::comm
