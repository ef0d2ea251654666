/// Samplers: choose the examples of an epoch, and their order.
///
/// The orders are PyTorch's (torch/utils/data/sampler.py of 2.13), bit for bit: the same generator state gives the same indices.
/// One difference: a sampler draws a whole epoch at once, and Python's draws during the epoch. A program sees it if it leaves an
/// epoch early and shares one generator between a sampler and other code.
///
/// Thread-safety: none; a sampler belongs to the thread that iterates the loader.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/data/samplers/state_dict.h"
#include "cohort/export.h"

namespace cohort::data {

/// An order of single examples. Derive from it for an order of your own.
class COHORT_API Sampler {
 public:
  virtual ~Sampler();
  /// Returns the indices of the next epoch. Each call begins a new epoch.
  virtual std::vector<int64_t> indices() = 0;
  /// The number of indices in an epoch.
  virtual int64_t size() const = 0;

  /// Returns the state after the first `num_given` indices of the current epoch. If `num_given` is absent, the epoch is over.
  virtual StateDict state_dict(std::optional<int64_t> num_given) const;
  /// Loads the state of a sampler with the same options. The next indices() then has the order of the unfinished epoch. Returns
  /// how many of its indices have been read and must be left out. Throws c10::ValueError for another kind of state.
  virtual int64_t load_state_dict(const StateDict& state);
};

/// The order 0, 1, 2, ...
class COHORT_API SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(int64_t dataset_size);
  std::vector<int64_t> indices() override;
  int64_t size() const override { return dataset_size_; }

 private:
  int64_t dataset_size_;
};

/// A sampler with random epochs that can be drawn again.
class COHORT_API DrawnSampler : public Sampler {
 public:
  StateDict state_dict(std::optional<int64_t> num_given) const override;
  int64_t load_state_dict(const StateDict& state) override;

 protected:
  explicit DrawnSampler(EpochGenerator generator) : generator_(std::move(generator)) {}
  EpochGenerator generator_;
};

struct RandomSamplerOptions {
  /// Draws each index independently, so that some come twice and some never.
  bool replacement = false;
  /// Default: the size of the dataset. A larger number without replacement means several permutations in a row.
  std::optional<int64_t> num_samples = {};
  /// Default: a private generator, seeded in each epoch from LibTorch's default CPU generator (torch::manual_seed).
  std::optional<at::Generator> generator = {};
};

/// A random permutation in each epoch, or draws with replacement.
class COHORT_API RandomSampler : public DrawnSampler {
 public:
  /// Throws c10::ValueError unless the number of samples is positive.
  explicit RandomSampler(int64_t dataset_size, RandomSamplerOptions options = {});
  std::vector<int64_t> indices() override;
  int64_t size() const override { return num_samples_; }

 private:
  int64_t dataset_size_;
  int64_t num_samples_;
  bool replacement_;
};

/// A random order of the given indices.
class COHORT_API SubsetRandomSampler : public DrawnSampler {
 public:
  explicit SubsetRandomSampler(std::vector<int64_t> subset, std::optional<at::Generator> generator = std::nullopt);
  std::vector<int64_t> indices() override;
  int64_t size() const override { return static_cast<int64_t>(subset_.size()); }

 private:
  std::vector<int64_t> subset_;
};

/// Draws index i with a probability proportional to weights[i].
class COHORT_API WeightedRandomSampler : public DrawnSampler {
 public:
  enum class Replacement { kNo, kYes };
  /// Throws c10::ValueError unless `num_samples` is positive.
  WeightedRandomSampler(const std::vector<double>& weights, int64_t num_samples,
                        Replacement replacement = Replacement::kYes,
                        std::optional<at::Generator> generator = std::nullopt);
  std::vector<int64_t> indices() override;
  int64_t size() const override { return num_samples_; }

 private:
  at::Tensor weights_;
  int64_t num_samples_;
  Replacement replacement_;
};

/// The treatment of examples that do not fill a batch.
enum class LastBatch { kKeep, kDrop };

/// Groups a sampler's indices into batches. Derive from it (without arguments) to form batches in your own way.
class COHORT_API BatchSampler {
 public:
  /// Throws c10::ValueError unless `batch_size` is positive.
  BatchSampler(std::shared_ptr<Sampler> sampler, int64_t batch_size, LastBatch last_batch = LastBatch::kKeep);
  virtual ~BatchSampler();
  /// Returns the batches of the next epoch. Each call begins a new epoch.
  virtual std::vector<std::vector<int64_t>> batches();
  /// The number of batches in an epoch.
  virtual int64_t size() const;

  /// As Sampler's, for batches. A class made without a sampler need not override them: batches that have been read are left out
  /// of the next batches().
  virtual StateDict state_dict(std::optional<int64_t> num_given) const;
  virtual int64_t load_state_dict(const StateDict& state);

 protected:
  BatchSampler();

 private:
  std::shared_ptr<Sampler> sampler_;
  int64_t batch_size_ = 1;
  LastBatch last_batch_ = LastBatch::kKeep;
  int64_t num_left_out_ = 0;  ///< indices of the next epoch that have been read
  int64_t num_before_ = 0;    ///< indices of this epoch that had been read when it began here
};

/// Returns a new CPU generator with this seed, equal to Python's torch.Generator().manual_seed(seed).
COHORT_API at::Generator make_generator(int64_t seed);

}  // namespace cohort::data
