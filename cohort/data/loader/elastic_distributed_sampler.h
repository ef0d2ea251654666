/// ElasticDistributedSampler: shares an epoch among ranks, and goes on in the middle of it with another number of ranks, so that
/// every example is seen exactly once:
///
///     auto sampler = std::make_shared<ElasticDistributedSampler>(dataset.size());
///     DataLoader loader(dataset, {.batch_size = 32, .sampler = sampler});
///     if (has_checkpoint) loader.load_state_dict(state);        // any rank's state, saved under any world size
///     for (int64_t epoch = sampler->epoch(); epoch < epochs; ++epoch) {
///       sampler->set_epoch(epoch);                              // the epoch that was loaded goes on
///       for (auto& batch : loader) ...                          // save loader.state_dict() where you like
///     }
///
/// The order of an epoch is that of DistributedSampler (seed + epoch); of what has not been given, rank r takes r, r + R,
/// r + 2R, ...
/// A state is right when all ranks have taken equally many batches of one size, which is so between steps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/data/loader/sampler.h"
#include "cohort/export.h"

namespace cohort::data {

/// What happens to examples that do not divide evenly among ranks.
enum class Remainder {
  kKeep,  ///< the first ranks have one more: every example exactly once. Ranks may have different numbers of batches, see Join
  kPad,   ///< some of the rest are repeated: every rank has equally many
  kDrop,  ///< they are left out
};

struct ElasticDistributedSamplerOptions {
  /// Default: those of the default group.
  std::optional<int64_t> num_replicas = {};
  std::optional<int64_t> rank = {};
  bool shuffle = true;
  /// Must be the same on every rank, and after each restart.
  int64_t seed = 0;
  Remainder remainder = Remainder::kKeep;
};

class COHORT_API ElasticDistributedSampler : public Sampler {
 public:
  /// Throws c10::ValueError when the rank is not in [0, num_replicas - 1].
  explicit ElasticDistributedSampler(int64_t dataset_size, const ElasticDistributedSamplerOptions& options = {});

  /// Of this rank, what has not been given of the epoch.
  std::vector<int64_t> indices() override;
  /// How many the next indices() has.
  int64_t size() const override;

  /// Begins a new epoch, unless it is the one that is set: that goes on where a loaded state left it.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }
  /// By set_epoch() or a loaded state.
  bool is_epoch_set() const { return is_epoch_set_; }
  bool shuffles() const { return shuffle_; }

  StateDict state_dict(std::optional<int64_t> num_given) const override;
  /// Returns 0: indices() leaves out what has been given. Throws c10::ValueError for the state of another dataset's length.
  int64_t load_state_dict(const StateDict& state) override;

 private:
  int64_t share_of(int64_t num_left) const;

  int64_t dataset_size_;
  int64_t num_replicas_;
  int64_t rank_;
  bool shuffle_;
  int64_t seed_;
  Remainder remainder_;
  int64_t epoch_ = 0;
  bool is_epoch_set_ = false;
  int64_t num_before_ = 0;  ///< of all ranks, when this epoch began here
  int64_t num_next_ = 0;    ///< of all ranks, to be left out of the next indices()
};

}  // namespace cohort::data
