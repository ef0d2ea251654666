#include "cohort/data/samplers/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "cohort/base/numbers/count.h"

namespace cohort::data {
namespace {

const at::TensorOptions kInt64 = at::TensorOptions().dtype(at::kLong);

void append(std::vector<int64_t>& to, const at::Tensor& values, int64_t count) {
  const int64_t* data = values.const_data_ptr<int64_t>();
  to.insert(to.end(), data, data + count);
}

constexpr auto kNumGiven = "num_samples_given";
constexpr auto kNumBatchesGiven = "num_batches_given";

// Python draws 32 at a time, and the values depend on the size of a draw.
void append_with_replacement(std::vector<int64_t>& to, int64_t high, int64_t count, const at::Generator& generator) {
  constexpr int64_t kDraw = 32;
  for (int64_t i = 0; i < count / kDraw; ++i) append(to, at::randint(high, {kDraw}, generator, kInt64), kDraw);
  append(to, at::randint(high, {count % kDraw}, generator, kInt64), count % kDraw);
}

}  // namespace

at::Generator make_generator(int64_t seed) { return at::detail::createCPUGenerator(static_cast<uint64_t>(seed)); }

Sampler::~Sampler() = default;

StateDict Sampler::state_dict(std::optional<int64_t> num_given) const {
  StateDict state;
  set_number(state, kNumGiven, num_given.value_or(0));
  return state;
}

int64_t Sampler::load_state_dict(const StateDict& state) {
  const int64_t num_given = number_in(state, kNumGiven);
  TORCH_CHECK_VALUE(num_given <= size(), "[cohort] the state dict of a DataLoader has given ", num_given,
                    " samples of an epoch, but this one has ", size());
  return num_given;
}

SequentialSampler::SequentialSampler(int64_t dataset_size) : dataset_size_(dataset_size) {}

std::vector<int64_t> SequentialSampler::indices() {
  std::vector<int64_t> result(dataset_size_);
  std::iota(result.begin(), result.end(), int64_t{0});
  return result;
}

RandomSampler::RandomSampler(int64_t dataset_size, RandomSamplerOptions options)
    : DrawnSampler({std::move(options.generator), EpochGenerator::Otherwise::kSeeded}),
      dataset_size_(dataset_size),
      num_samples_(options.num_samples.value_or(dataset_size)),
      replacement_(options.replacement) {
  TORCH_CHECK_VALUE(num_samples_ > 0,
                    "num_samples should be a positive integer value, but got num_samples=", num_samples_);
}

std::vector<int64_t> RandomSampler::indices() {
  const at::Generator generator = generator_.begin();
  std::vector<int64_t> result;
  result.reserve(num_samples_);
  if (replacement_) {
    append_with_replacement(result, dataset_size_, num_samples_, generator);
    return result;
  }
  TORCH_CHECK_VALUE(dataset_size_ > 0, "[cohort] RandomSampler needs a dataset with examples, but got a size of ",
                    dataset_size_);
  for (int64_t i = 0; i < num_samples_ / dataset_size_; ++i) {
    append(result, at::randperm(dataset_size_, generator, kInt64), dataset_size_);
  }
  // Drawn even if none of it is used, as in Python, so that a given generator advances equally.
  append(result, at::randperm(dataset_size_, generator, kInt64), num_samples_ % dataset_size_);
  return result;
}

StateDict DrawnSampler::state_dict(std::optional<int64_t> num_given) const {
  auto state = Sampler::state_dict(num_given);
  generator_.add_to(state, /*is_over=*/!num_given);
  return state;
}

int64_t DrawnSampler::load_state_dict(const StateDict& state) {
  const int64_t num_given = Sampler::load_state_dict(state);
  generator_.load(state);
  return num_given;
}

SubsetRandomSampler::SubsetRandomSampler(std::vector<int64_t> subset, std::optional<at::Generator> generator)
    : DrawnSampler({std::move(generator), EpochGenerator::Otherwise::kDefault}), subset_(std::move(subset)) {}

std::vector<int64_t> SubsetRandomSampler::indices() {
  std::vector<int64_t> order;
  append(order, at::randperm(size(), generator_.begin(), kInt64), size());
  for (int64_t& place : order) place = subset_[place];
  return order;
}

WeightedRandomSampler::WeightedRandomSampler(const std::vector<double>& weights, int64_t num_samples,
                                             Replacement replacement, std::optional<at::Generator> generator)
    : DrawnSampler({std::move(generator), EpochGenerator::Otherwise::kDefault}),
      weights_(at::tensor(weights, at::kDouble)),
      num_samples_(num_samples),
      replacement_(replacement) {
  TORCH_CHECK_VALUE(num_samples > 0,
                    "num_samples should be a positive integer value, but got num_samples=", num_samples);
}

std::vector<int64_t> WeightedRandomSampler::indices() {
  std::vector<int64_t> result;
  const bool replaces = replacement_ == Replacement::kYes;
  append(result, at::multinomial(weights_, num_samples_, replaces, generator_.begin()), num_samples_);
  return result;
}

BatchSampler::BatchSampler() = default;
BatchSampler::~BatchSampler() = default;

BatchSampler::BatchSampler(std::shared_ptr<Sampler> sampler, int64_t batch_size, LastBatch last_batch)
    : sampler_(std::move(sampler)), batch_size_(batch_size), last_batch_(last_batch) {
  TORCH_CHECK_VALUE(sampler_ != nullptr, "[cohort] BatchSampler needs a sampler, but got a null pointer");
  TORCH_CHECK_VALUE(batch_size > 0, "batch_size should be a positive integer value, but got batch_size=", batch_size);
}

std::vector<std::vector<int64_t>> BatchSampler::batches() {
  TORCH_CHECK_NOT_IMPLEMENTED(sampler_ != nullptr,
                              "[cohort] a class derived from BatchSampler must override batches()");
  num_before_ = std::exchange(num_left_out_, 0);
  const std::vector<int64_t> indices = sampler_->indices();
  const auto count = static_cast<int64_t>(indices.size());
  std::vector<std::vector<int64_t>> result;
  for (int64_t begin = num_before_; begin < count;) {
    const int64_t size = std::min(batch_size_, count - begin);
    if (size < batch_size_ && last_batch_ == LastBatch::kDrop) break;
    result.emplace_back(indices.begin() + begin, indices.begin() + begin + size);
    begin += size;
  }
  return result;
}

int64_t BatchSampler::size() const {
  TORCH_CHECK_NOT_IMPLEMENTED(sampler_ != nullptr, "[cohort] a class derived from BatchSampler must override size()");
  const int64_t count = sampler_->size();
  return last_batch_ == LastBatch::kDrop ? count / batch_size_ : base::divide_up(count, batch_size_);
}

StateDict BatchSampler::state_dict(std::optional<int64_t> num_given) const {
  if (!sampler_) {
    StateDict state;
    set_number(state, kNumBatchesGiven, num_given.value_or(0));
    return state;
  }
  if (!num_given) return sampler_->state_dict(std::nullopt);
  return sampler_->state_dict(
      std::min(base::add_capped(num_before_, base::multiply_capped(*num_given, batch_size_)), sampler_->size()));
}

int64_t BatchSampler::load_state_dict(const StateDict& state) {
  if (!sampler_) return number_in(state, kNumBatchesGiven);
  num_left_out_ = sampler_->load_state_dict(state);
  return 0;
}

}  // namespace cohort::data
