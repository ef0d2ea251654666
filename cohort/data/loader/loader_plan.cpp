#include "cohort/data/loader/loader_plan.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/base/machine/cpu.h"
#include "cohort/base/numbers/count.h"
#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/group/job_warning.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/data/samplers/elastic_distributed_sampler.h"

namespace cohort::data::detail {
namespace {

constexpr auto kBaseSeed = "base_seed";
constexpr auto kNumGiven = "num_batches_given";
constexpr auto kNumEpochs = "num_epochs_before";

// Calls `visit` with the sampler as its own type, if its order depends on the number of the epoch. Returns whether it does.
template <typename Visit>
bool visit_epochs(Sampler* sampler, const Visit& visit) {
  if (auto* const elastic = dynamic_cast<ElasticDistributedSampler*>(sampler)) {
    visit(*elastic);
    return true;
  }
  auto* const distributed = dynamic_cast<DistributedSampler*>(sampler);
  if (distributed) visit(*distributed);
  return distributed != nullptr;
}

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
  TORCH_CHECK_VALUE(options.num_workers > 0 || !options.persistent_workers,
                    "persistent_workers option needs num_workers > 0");
  TORCH_CHECK_VALUE(!options.device || options.device->is_cpu() || options.device->type() == comm::accelerator_type(),
                    "[cohort] device option should be the CPU or an accelerator of this process, but got device=",
                    options.device->str());
}

void check_of_map(const DataLoaderOptions& options) {
  TORCH_CHECK_VALUE(!options.sampler || !options.shuffle, "sampler option is mutually exclusive with shuffle");
  const bool has_batch_options = options.batch_size != 1 || options.global_batch_size || options.shuffle ||
                                 options.sampler != nullptr || options.drop_last;
  TORCH_CHECK_VALUE(!options.batch_sampler || !has_batch_options,
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last");
}

void check_of_iterable(const DataLoaderOptions& options) {
  TORCH_CHECK_VALUE(!options.shuffle,
                    "DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=True");
  TORCH_CHECK_VALUE(!options.sampler,
                    "DataLoader with IterableDataset: expected unspecified sampler option, but got a sampler");
  TORCH_CHECK_VALUE(
      !options.batch_sampler,
      "DataLoader with IterableDataset: expected unspecified batch_sampler option, but got a batch_sampler");
  TORCH_CHECK_VALUE(options.batch_size > 0,
                    "batch_size should be a positive integer value, but got batch_size=", options.batch_size);
}

// Checks as in Python for batch_size=None, which is Unbatched here.
void check_unbatched(const DataLoaderOptions& options) {
  TORCH_CHECK_VALUE(
      !options.drop_last && options.batch_size == 1 && !options.global_batch_size && !options.batch_sampler,
      "batch_size=None option disables auto-batching and is mutually exclusive with drop_last");
}

void apply_global_batch_size(DataLoaderOptions& options) {
  if (!options.global_batch_size) return;
  const int64_t global = *options.global_batch_size;
  const int64_t num_ranks = is_initialized() ? get_world_size() : 1;
  TORCH_CHECK_VALUE(options.batch_size == 1, "[cohort] global_batch_size option is mutually exclusive with batch_size");
  TORCH_CHECK_VALUE(global >= num_ranks, "[cohort] global_batch_size=", global, " is too small for ", num_ranks,
                    " ranks: each needs a sample");
  options.batch_size = global / num_ranks;
  if (global % num_ranks == 0) return;
  comm::warn_once_per_job(c10::str("a global batch of ", global, " samples does not divide evenly among ", num_ranks,
                                   " ranks: each takes ", options.batch_size, ", so that a step has ",
                                   options.batch_size * num_ranks, ", ", global % num_ranks, " fewer."));
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

bool copies_to_device(const DataLoaderOptions& options) { return options.device && !options.device->is_cpu(); }

bool can_pin(const DataLoaderOptions& options) {
  if (copies_to_device(options)) return comm::accelerator().has_value();
  if (!options.pin_memory) return false;
  if (comm::accelerator()) return true;
  comm::warn_once_per_job(
      "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.");
  return false;
}

void warn_of_many_workers(int num_workers) {
  const auto num_cores = base::available_cores();
  if (num_workers <= num_cores) return;
  comm::warn_once_per_job(
      c10::str("This DataLoader will create ", num_workers,
               " worker threads in total. Our suggested max number of worker in current system is ", num_cores,
               ", which is smaller than what this DataLoader is going to create. Please be aware that excessive "
               "worker creation might get DataLoader running slow, lower the worker number to avoid potential "
               "slowness if necessary."));
}

}  // namespace

LoaderPlan::LoaderPlan(DataLoaderOptions options, const DatasetFacts& dataset)
    : options_(std::move(options)), dataset_(dataset), is_iterable_(!dataset.size), pins_memory_(can_pin(options_)) {
  check(options_);
  if (is_iterable_) check_of_iterable(options_);
  if (!is_iterable_) check_of_map(options_);
  if (!dataset.is_batched) check_unbatched(options_);
  apply_global_batch_size(options_);
  const size_t num_ahead =
      static_cast<size_t>(options_.num_workers) * static_cast<size_t>(options_.prefetch_factor.value_or(2));
  // For two large tensors per batch, of all batches read ahead and of the two that a loop holds while it takes the next.
  memory_ = std::make_shared<BatchMemory>(2 * (num_ahead + 2));
  if (!is_iterable_) batch_sampler_ = make_batch_sampler(options_, *dataset.size);
  warn_of_many_workers(options_.num_workers);
}

// Drawn before the sampler draws, also without workers, so that the generator advances as in Python.
int64_t LoaderPlan::next_base_seed() {
  if (loaded_ && loaded_->contains(kBaseSeed)) return number_in(*loaded_, kBaseSeed);
  return at::empty({}, at::kLong).random_(options_.generator).item<int64_t>();
}

// The number comes from the sampler, or from this loader's count. If the order never changes, as in validation, the dataset is
// not told; for an iterable dataset it always is, as its order is not known.
void LoaderPlan::tell_epoch() {
  const auto number = num_epochs_++;
  if (std::exchange(is_told_, false) || !dataset_.begin_epoch) return;
  const bool has_epochs = visit_epochs(options_.sampler.get(), [&](const auto& sampler) {
    if (sampler.is_epoch_set()) {
      dataset_.begin_epoch(sampler.epoch(), EpochBy::kSampler);
    } else if (sampler.shuffles()) {
      dataset_.begin_epoch(sampler.epoch(), EpochBy::kCount);
    }
  });
  if (has_epochs) return;
  const bool changes = is_iterable_ || options_.shuffle || options_.sampler || options_.batch_sampler;
  if (changes || says_epochs_ == EpochBy::kLoader) dataset_.begin_epoch(number, says_epochs_);
}

void LoaderPlan::set_epoch(int64_t epoch) {
  visit_epochs(options_.sampler.get(), [epoch](auto& sampler) { sampler.set_epoch(epoch); });
  num_epochs_ = epoch;
  says_epochs_ = EpochBy::kLoader;
  if (dataset_.begin_epoch) dataset_.begin_epoch(epoch, says_epochs_);
  is_told_ = true;
}

std::shared_ptr<WorkerThreads> LoaderPlan::lease_workers() {
  if (options_.num_workers == 0) return nullptr;
  if (workers_ && workers_->lease()) return workers_;
  auto workers = std::make_shared<WorkerThreads>(options_.num_workers, options_.worker_init_fn, dataset_.address);
  workers->lease();
  if (options_.persistent_workers && !workers_) workers_ = workers;
  return workers;
}

std::unique_ptr<BatchStream> LoaderPlan::begin_epoch(std::unique_ptr<BatchSource> source, int64_t num_left_out) {
  const StreamOptions options{.num_workers = options_.num_workers,
                              .prefetch_factor = options_.prefetch_factor.value_or(2),
                              .timeout = options_.timeout,
                              .in_order = options_.in_order,
                              .base_seed = base_seed_,
                              .skips_unreadable = options_.skip_unreadable,
                              .reads_all_samples = !is_iterable_ && !options_.sampler && !options_.batch_sampler};
  auto copies =
      copies_to_device(options_) ? std::make_unique<DeviceCopies>(*options_.device, dataset_.visit_batch) : nullptr;
  auto stream = std::make_unique<BatchStream>(std::move(source), options, lease_workers(), std::move(copies));
  loaded_.reset();
  num_left_out_ = num_left_out;
  was_ended_ = false;
  epoch_ = stream->progress();
  return stream;
}

std::unique_ptr<BatchStream> LoaderPlan::start(ReadBatch read, int64_t first_batch) {
  base_seed_ = next_base_seed();
  first_batch = base::add_capped(first_batch, std::exchange(num_loaded_, 0));
  std::vector<std::vector<int64_t>> batches = batch_sampler_->batches();
  const auto num_batches = static_cast<int64_t>(batches.size());
  TORCH_CHECK_VALUE(first_batch >= 0 && first_batch <= num_batches,
                    "[cohort] first_batch should be in the interval [0, ", num_batches,
                    "], but got first_batch=", first_batch);
  batches.erase(batches.begin(), batches.begin() + first_batch);
  return begin_epoch(std::make_unique<MapSource>(std::move(batches), std::move(read)), first_batch);
}

std::unique_ptr<BatchStream> LoaderPlan::start(std::function<NextBatch()> begin, int64_t first_batch) {
  TORCH_CHECK_VALUE(first_batch >= 0, "[cohort] first_batch should be non-negative, but got first_batch=", first_batch);
  base_seed_ = next_base_seed();
  first_batch = base::add_capped(first_batch, std::exchange(num_loaded_, 0));
  auto stream = begin_epoch(std::make_unique<IterableSource>(options_.num_workers, std::move(begin)), first_batch);
  stream->discard(first_batch);
  return stream;
}

int64_t LoaderPlan::num_batches() const {
  TORCH_CHECK_TYPE(!is_iterable_,
                   "[cohort] a DataLoader of an iterable dataset has no size, as the number of samples is not known");
  return batch_sampler_->size();
}

StateDict LoaderPlan::state_dict() const {
  if (loaded_) return *loaded_;
  std::optional<int64_t> num_given;
  if (epoch_ && !epoch_->is_over && !was_ended_) num_given = num_left_out_ + epoch_->stats.num_batches;
  StateDict state;
  if (is_iterable_) {
    set_number(state, kNumGiven, num_given.value_or(0));
  } else {
    state = batch_sampler_->state_dict(num_given);
  }
  if (num_given) set_number(state, kBaseSeed, base_seed_);
  if (dataset_.begin_epoch) set_number(state, kNumEpochs, num_given ? num_epochs_ - 1 : num_epochs_);
  return state;
}

void LoaderPlan::load_state_dict(const StateDict& state) {
  if (state.contains(kBaseSeed)) number_in(state, kBaseSeed);  // throws if it is not valid
  if (state.contains(kNumEpochs)) num_epochs_ = number_in(state, kNumEpochs);
  num_loaded_ = is_iterable_ ? number_in(state, kNumGiven) : batch_sampler_->load_state_dict(state);
  loaded_ = state;
}

EpochStats LoaderPlan::stats() const { return epoch_ ? epoch_->stats : EpochStats(); }

}  // namespace cohort::data::detail
