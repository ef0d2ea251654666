// One rank alone makes a call of the program that communicates: the error names that call.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/average_parameters.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

BACKEND_OF_FILE(both)

namespace cohort {
namespace {

using testing::HasSubstr;

// Rank 0 alone makes the call of the argument; then all go on.
COHORT_WORKER(calls_on_one_rank) {
  init_process_group(test::backend_of_tests().c_str());
  const auto& what = test::worker_arguments().at(0);
  auto net = test::seeded_net<test::Mlp>();
  auto model = fully_shard(net);
  const auto mesh = init_device_mesh("cpu", {2});
  const auto own = at::full({3}, get_rank() + 1.0);
  const DTensor whole = distribute_tensor(at::arange(8.0), mesh, {Shard(0)});
  model(test::batch_of(get_rank(), 0)).sum().backward();
  barrier();
  test::print_error([&] {
    if (get_rank() == 0 && what == "clip_grad_norm_") nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    if (get_rank() == 0 && what == "item") whole.sum().item<double>();
    if (get_rank() == 0 && what == "full_tensor") whole.full_tensor();
    if (get_rank() == 0 && what == "average_parameters") optim::average_parameters(TensorList{own}, {});
    for (int i = 0; i < 3; ++i) barrier({.group = mesh.group(0)});
  });
  // One that ends is "gone" to the other.
  const std::filesystem::path folder = test::worker_arguments().at(1);
  std::ofstream(folder / std::to_string(get_rank())).close();
  while (!std::filesystem::exists(folder / std::to_string(1 - get_rank()))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void expect_named(const std::string& what, const std::string& words) {
  SCOPED_TRACE(what);
  const test::TemporaryFolder folder;
  const auto results = test::run_workers("calls_on_one_rank", {.arguments = {what, folder.path()}});
  results.expect_success();
  for (const int rank : {0, 1}) {
    EXPECT_THAT(results[rank].output, testing::AnyOf(HasSubstr(", which is " + words + "\n"),
                                                     HasSubstr(", which is " + words + " on rank ")));
    EXPECT_THAT(
        results[rank].output,
        HasSubstr("  hint: all ranks must make the calls that communicate, in the same order: look for one under a "
                  "condition that not all ranks meet, such as rank == 0; or some ranks take more steps than others\n"));
    EXPECT_THAT(results[rank].errors, testing::Not(HasSubstr("DistributedDataParallel")));
  }
}

TEST(MissingCalls, AreNamedMessage) {
  const std::string of_dtensor =
      "communication of an operation on a DTensor, such as item(), full_tensor() or a matrix product";
  expect_named("clip_grad_norm_", "the norm of all ranks' gradients in clip_grad_norm_");
  expect_named("item", of_dtensor);
  expect_named("full_tensor", of_dtensor);
  expect_named("average_parameters", "an average of the ranks' parameters");
}

}  // namespace
}  // namespace cohort
