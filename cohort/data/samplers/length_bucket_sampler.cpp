#include "cohort/data/samplers/length_bucket_sampler.h"

#include <ATen/ops/randperm.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/base/numbers/count.h"

namespace cohort::data {
namespace {

constexpr auto kNumBatches = "num_batches_given";
constexpr auto kOrderOfBatches = "generator_of_batches";

using Batches = std::vector<std::vector<int64_t>>;

void append_shuffled(Batches& to, Batches batches, const at::Generator& generator) {
  const auto count = static_cast<int64_t>(batches.size());
  const auto order = at::randperm(count, generator, at::TensorOptions().dtype(at::kLong));
  const auto* const places = order.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) to.push_back(std::move(batches[static_cast<size_t>(places[i])]));
}

}  // namespace

LengthBucketSampler::LengthBucketSampler(std::vector<int64_t> lengths, int64_t batch_size,
                                         LengthBucketSamplerOptions options)
    : lengths_(std::move(lengths)),
      batch_size_(batch_size),
      pool_batches_(options.pool_batches),
      last_batch_(options.last_batch),
      sampler_(std::move(options.sampler)),
      generator_(options.generator, EpochGenerator::Otherwise::kSeeded) {
  TORCH_CHECK_VALUE(batch_size > 0, "batch_size should be a positive integer value, but got batch_size=", batch_size);
  TORCH_CHECK_VALUE(pool_batches_ > 0,
                    "[cohort] pool_batches should be a positive integer value, but got pool_batches=", pool_batches_);
  if (sampler_) return;
  sampler_ = std::make_shared<RandomSampler>(static_cast<int64_t>(lengths_.size()),
                                             RandomSamplerOptions{.generator = std::move(options.generator)});
}

Batches LengthBucketSampler::batches() {
  const auto indices = sampler_->indices();
  const auto generator = generator_.begin();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(0 <= index && index < static_cast<int64_t>(lengths_.size()), "[cohort] LengthBucketSampler has ",
                      lengths_.size(), " lengths, but none of example ", index);
  }
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t pool_size = std::min(base::multiply_capped(pool_batches_, batch_size_), count);
  Batches result;
  for (int64_t begin = 0; begin < count; begin += pool_size) {
    const int64_t num_pooled = std::min(pool_size, count - begin);
    std::vector<int64_t> pool(indices.begin() + begin, indices.begin() + begin + num_pooled);
    std::stable_sort(pool.begin(), pool.end(), [&](int64_t a, int64_t b) {
      return lengths_[static_cast<size_t>(a)] < lengths_[static_cast<size_t>(b)];
    });
    Batches batches;
    for (int64_t i = 0; i < num_pooled;) {
      const int64_t size = std::min(batch_size_, num_pooled - i);
      if (size < batch_size_ && last_batch_ == LastBatch::kDrop) break;
      batches.emplace_back(pool.begin() + i, pool.begin() + i + size);
      i += size;
    }
    append_shuffled(result, std::move(batches), generator);
  }
  return result;
}

int64_t LengthBucketSampler::size() const {
  const int64_t count = sampler_->size();
  return last_batch_ == LastBatch::kDrop ? count / batch_size_ : base::divide_up(count, batch_size_);
}

StateDict LengthBucketSampler::state_dict(std::optional<int64_t> num_given) const {
  auto state = sampler_->state_dict(num_given ? std::optional<int64_t>(0) : std::nullopt);
  generator_.add_to(state, /*is_over=*/!num_given, kOrderOfBatches);
  set_number(state, kNumBatches, num_given.value_or(0));
  return state;
}

int64_t LengthBucketSampler::load_state_dict(const StateDict& state) {
  const int64_t num_given = number_in(state, kNumBatches);
  TORCH_CHECK_VALUE(num_given <= size(), "[cohort] the state dict of a DataLoader has given ", num_given,
                    " batches of an epoch, but this one has ", size());
  generator_.load(state, kOrderOfBatches);
  sampler_->load_state_dict(state);  // draws first, in case both have the same generator
  return num_given;
}

}  // namespace cohort::data
