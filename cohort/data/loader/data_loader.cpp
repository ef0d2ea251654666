#include "cohort/data/loader/data_loader.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace cohort::data::detail {
namespace {

void check(const DataLoaderOptions& options) {
  TORCH_CHECK_VALUE(options.num_workers >= 0,
                    "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.");
  TORCH_CHECK_VALUE(options.timeout.count() >= 0, "timeout option should be non-negative");
  TORCH_CHECK_VALUE(options.num_workers > 0 || !options.prefetch_factor.has_value(),
                    "prefetch_factor option could only be specified in multiprocessing."
                    "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None.");
  TORCH_CHECK_VALUE(options.prefetch_factor.value_or(0) >= 0, "prefetch_factor option should be non-negative");
  TORCH_CHECK_VALUE(options.prefetch_factor.value_or(1) > 0,
                    "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter");
  TORCH_CHECK_VALUE(!options.sampler || !options.shuffle, "sampler option is mutually exclusive with shuffle");
  const bool has_batch_options =
      options.batch_size != 1 || options.shuffle || options.sampler != nullptr || options.drop_last;
  TORCH_CHECK_VALUE(!options.batch_sampler || !has_batch_options,
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last");
}

std::shared_ptr<BatchSampler> make_batch_sampler(const DataLoaderOptions& options, int64_t dataset_size) {
  if (options.batch_sampler) return options.batch_sampler;
  std::shared_ptr<Sampler> sampler = options.sampler;
  if (!sampler && options.shuffle) {
    sampler = std::make_shared<RandomSampler>(dataset_size, RandomSamplerOptions{.generator = options.generator});
  } else if (!sampler) {
    sampler = std::make_shared<SequentialSampler>(dataset_size);
  }
  return std::make_shared<BatchSampler>(sampler, options.batch_size,
                                        options.drop_last ? LastBatch::kDrop : LastBatch::kKeep);
}

}  // namespace

LoaderPlan::LoaderPlan(DataLoaderOptions options, int64_t dataset_size) : options_(std::move(options)) {
  check(options_);
  batch_sampler_ = make_batch_sampler(options_, dataset_size);
}

std::unique_ptr<BatchStream> LoaderPlan::start(ReadBatch read, int64_t first_batch) const {
  // Drawn before the sampler draws, and also without workers, as in Python: the generator moves on by the same steps.
  const int64_t base_seed = at::empty({}, at::kLong).random_(options_.generator).item<int64_t>();
  std::vector<std::vector<int64_t>> batches = batch_sampler_->batches();
  const auto num_batches = static_cast<int64_t>(batches.size());
  TORCH_CHECK_VALUE(first_batch >= 0 && first_batch <= num_batches, "first_batch should be in the interval [0, ",
                    num_batches, "], but got first_batch=", first_batch);
  batches.erase(batches.begin(), batches.begin() + first_batch);
  StreamOptions stream{.num_workers = options_.num_workers,
                       .prefetch_factor = options_.prefetch_factor.value_or(2),
                       .timeout = options_.timeout,
                       .in_order = options_.in_order,
                       .base_seed = base_seed,
                       .worker_init = options_.worker_init_fn};
  return std::make_unique<BatchStream>(std::move(batches), std::move(read), std::move(stream));
}

}  // namespace cohort::data::detail
