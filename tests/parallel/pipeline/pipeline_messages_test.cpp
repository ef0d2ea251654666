// What ranks are told when a stage gives what no other rank can take, and when an evaluation fails.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

struct NothingImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(Nothing);

COHORT_WORKER(hands_a_dtensor_over) {
  init_process_group(InitOptions{.backend = test::backend_of_tests()});
  const int rank = get_rank();
  const DeviceMesh mesh = init_device_mesh("cpu", {2});
  const Nothing net;
  const auto forward = [&](const TensorList& inputs) -> TensorList {
    if (rank == 1) return inputs;
    return {DTensor::from_local(inputs[0], mesh, {Replicate()})};
  };
  PipelineSchedule schedule("GPipe", {PipelineStage(net.ptr(), forward, rank, 2)}, 2);
  test::print_error([&] { schedule.eval(rank == 0 ? TensorList{at::ones({4, 2})} : TensorList()); });
  destroy_process_group();
}
TEST(PipelineFailure, OfADTensorMessage) {
  const auto results = test::run_workers("hands_a_dtensor_over", {.world_size = 2});
  const std::string text =
      "[cohort] pipeline: a stage returned a DTensor for another rank, but tensors between stages must be plain\n"
      "  hint: end its forward with full_tensor() or to_local(), and begin the next stage's with "
      "DTensor::from_local() ([cohort] pipeline: rank 0 ran 0SEND_F0, step 2 of 11 in its list)\n";
  EXPECT_EQ(results[0].output, text);
  const std::string told = base::replace_all(text.substr(9), "\n  hint", "\n    hint");
  EXPECT_EQ(results[1].output, "[cohort] pipeline: the step failed\n  rank 0: " + told);
}

TEST(PipelineFailure, OfTheLossInEvaluationMessage) {
  test::run_rank_threads(3, [](int rank, const Group& group) {
    int num_losses = 0;
    PipelineOptions options;
    options.loss_fn = [&](const TensorList& outputs, const at::Tensor&) -> at::Tensor {
      TORCH_CHECK(num_losses++ != 1, "no such class");
      return outputs[0].sum();
    };
    PipelineSchedule schedule("1F1B", {PipelineStage(Nothing(), rank, 3, {.group = group})}, 3, options);
    const std::string error = test::error_of([&] {
      schedule.eval(rank == 0 ? TensorList{at::ones({3, 2})} : TensorList(), {.target = at::ones({3})});
    });
    const std::string head = rank == 2 ? "" : "[cohort] pipeline: the step failed\n  rank 2: ";
    REQUIRE_EQUAL(error, head + "no such class ([cohort] pipeline: rank 2 ran 2F1, step 6 of 15 in its list)");
  });
}

}  // namespace
}  // namespace cohort
