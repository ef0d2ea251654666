// Loops of several ranks over a loader that gives each of them all samples.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>

#include "cohort/comm/group/process_group.h"
#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"

BACKEND_OF_FILE(both)

namespace cohort {
namespace {

using Loader = data::DataLoader<data::TensorDataset<1>>;

template <class Model>
void train(Model& model, const Loader& loader, const Loader& validation) {
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : loader) {
      model(std::get<0>(batch)).sum().backward();
      const at::NoGradGuard no_grad;
      for (auto& other : validation) model(std::get<0>(other));
    }
  }
}

// Arguments: "ddp" or "fsdp", and the sampler.
COHORT_WORKER(trains_on_batches) {
  init_process_group(test::backend_of_tests().c_str());
  const data::TensorDataset dataset(at::rand({8, 3}));
  const auto& kind = test::worker_arguments().at(1);
  data::DataLoaderOptions options{.batch_size = 2, .num_workers = 1};
  if (kind == "shuffle") options.shuffle = true;
  if (kind == "distributed") {
    options.sampler = std::make_shared<data::DistributedSampler>(8, data::DistributedSamplerOptions{.shuffle = false});
  }
  const Loader loader(dataset, options), validation(dataset, {.batch_size = 8});
  if (test::worker_arguments().at(0) == "ddp") {
    DistributedDataParallel model(torch::nn::Linear(3, 2));
    train(model, loader, validation);
  } else {
    auto model = fully_shard(torch::nn::Linear(3, 2));
    train(model, loader, validation);
  }
  destroy_process_group();
}

TEST(UnsharedBatches, AreWarnedOfOnceMessage) {
  const std::string warning =
      "[cohort] warning: each of the 2 ranks trains on batches of a DataLoader that has no sampler, so it reads all "
      "samples of "
      "its dataset: where the datasets are the same, the ranks repeat each other's work. Give the loader a "
      "data::DistributedSampler. If each rank's dataset has other samples, all is well.\n";
  for (const std::string strategy : {"ddp", "fsdp"}) {
    for (const std::string sampler : {"none", "shuffle", "distributed"}) {
      SCOPED_TRACE(strategy + ", " + sampler);
      const auto results = test::run_workers("trains_on_batches", {.arguments = {strategy, sampler}});
      results.expect_success();
      EXPECT_EQ(results[0].errors, sampler == "distributed" ? "" : warning);
      EXPECT_EQ(results[1].errors, "");
    }
  }
}

}  // namespace
}  // namespace cohort
