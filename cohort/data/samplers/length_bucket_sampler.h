/// LengthBucketSampler: makes batches of examples of similar lengths, so that they need little padding.
///
///     DataLoader loader(texts, {.batch_sampler = std::make_shared<LengthBucketSampler>(lengths, 32)});
///
/// Divides the sampler's order into pools of many batches, sorts each pool by length, divides it into batches, and returns these
/// in a random order. So batches differ from epoch to epoch as much as the sampler's order does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/data/samplers/sampler.h"
#include "cohort/export.h"

namespace cohort::data {

struct LengthBucketSamplerOptions {
  /// Default: a RandomSampler. For several ranks use a DistributedSampler.
  std::shared_ptr<Sampler> sampler = {};
  /// Batches in a pool. More batches make lengths more similar, and the order less random.
  int64_t pool_batches = 100;
  LastBatch last_batch = LastBatch::kKeep;
  /// Draws the order of batches, and seeds the default sampler. Default: as RandomSampler.
  std::optional<at::Generator> generator = {};
};

class COHORT_API LengthBucketSampler : public BatchSampler {
 public:
  /// `lengths`: of all examples of the dataset. Throws c10::ValueError unless batch_size and pool_batches are positive.
  LengthBucketSampler(std::vector<int64_t> lengths, int64_t batch_size, LengthBucketSamplerOptions options = {});

  /// Throws c10::IndexError for an example without a length.
  std::vector<std::vector<int64_t>> batches() override;
  int64_t size() const override;
  StateDict state_dict(std::optional<int64_t> num_given) const override;
  int64_t load_state_dict(const StateDict& state) override;

 private:
  std::vector<int64_t> lengths_;
  int64_t batch_size_;
  int64_t pool_batches_;
  LastBatch last_batch_;
  std::shared_ptr<Sampler> sampler_;
  EpochGenerator generator_;
};

}  // namespace cohort::data
