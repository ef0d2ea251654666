/// Iterable datasets on several ranks and workers: sharded() gives each worker of each rank different samples, so that none comes
/// twice:
///
///     DataLoader loader(sharded(lines), {.batch_size = 32, .num_workers = 2});
///
/// Sample i goes to the reader i mod (ranks * workers); reader w * ranks + r is worker w of rank r. So ranks get the same number
/// of samples, up to one. Each reader iterates over all samples and drops those of the others, or skips them if the iterator has
/// `skip(int64_t count)`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "cohort/data/datasets/dataset.h"
#include "cohort/data/datasets/share.h"
#include "cohort/data/loader/read_batch.h"
#include "cohort/export.h"

namespace cohort::data {

/// Every count-th sample, from `index` on.
struct ShardOfSamples {
  int64_t index = 0;
  int64_t count = 1;
};

struct ShardOptions {
  /// Default: the values of the default group; without one, a single rank.
  std::optional<int64_t> num_replicas = {};
  std::optional<int64_t> rank = {};
};

namespace detail {

/// Returns the shard of a rank without workers. Throws c10::ValueError for a rank outside [0, num_replicas - 1].
COHORT_API ShardOfSamples shard_of_rank(const ShardOptions& options);
/// Returns the shard of the calling thread.
COHORT_API ShardOfSamples shard_of_worker(ShardOfSamples of_rank);

template <typename Iterator>
class ShardedIterator {
 public:
  ShardedIterator(Iterator inner, ShardOfSamples shard)
      : inner_(std::move(inner)), num_others_(shard.count - 1), num_before_(shard.index) {}

  auto next() -> decltype(std::declval<Iterator&>().next()) {
    pass_by(std::exchange(num_before_, num_others_));
    if (has_ended_) return std::nullopt;
    return inner_.next();
  }

 private:
  void pass_by(int64_t count) {
    if constexpr (requires { inner_.skip(count); }) {
      inner_.skip(count);
    } else {
      while (!has_ended_ && count-- > 0) has_ended_ = !inner_.next();
    }
  }

  Iterator inner_;
  int64_t num_others_;
  int64_t num_before_;
  bool has_ended_ = false;
};

}  // namespace detail

template <typename Dataset>
class ShardedDataset {
 public:
  ShardedDataset(std::shared_ptr<Dataset> dataset, ShardOfSamples of_rank)
      : dataset_(std::move(dataset)), of_rank_(of_rank) {}
  /// Iterates over the shard of the calling thread.
  auto iterate() const { return detail::ShardedIterator(dataset_->iterate(), detail::shard_of_worker(of_rank_)); }
  /// See detail::tell_epoch().
  void begin_epoch(int64_t epoch, detail::EpochBy who) const { detail::tell_epoch(*dataset_, epoch, who); }
  Dataset& dataset() const { return *dataset_; }

 private:
  std::shared_ptr<Dataset> dataset_;
  ShardOfSamples of_rank_;
};

/// `dataset`: an iterable dataset, or a std::shared_ptr to one. Throws c10::ValueError for an invalid rank.
template <typename Dataset>
auto sharded(Dataset dataset, const ShardOptions& options = {}) {
  return ShardedDataset<detail::SharedType<Dataset>>(detail::share(std::move(dataset), "sharded"),
                                                     detail::shard_of_rank(options));
}

}  // namespace cohort::data
