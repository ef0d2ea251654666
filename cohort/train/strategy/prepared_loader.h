/// PreparedLoader: a DataLoader from an Accelerator: shuffles each epoch anew, and reports the last batch.
///
/// Thread-safety: as DataLoader.
#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "cohort/train/strategy/batch_feed.h"

namespace cohort::train {

/// Callbacks of a loop over batches for the code that prepared the loader.
struct LoopHooks {
  std::function<void()> on_begin;  ///< an epoch begins
  std::function<void(bool is_last)> on_batch;
  /// Returns whether all ranks have another batch, given whether this one has. If null, each rank decides alone.
  std::function<bool(bool has_batch)> do_all;
};

template <class Loader>
class PreparedLoader {
 public:
  PreparedLoader(const Loader& loader, LoopHooks hooks)
      : feed_(std::make_shared<LoaderFeed<Loader>>(loader)), hooks_(std::move(hooks)) {}

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = typename Loader::Batch;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(PreparedLoader* loader) : loader_(loader) { ++*this; }
    value_type& operator*() const { return loader_->batch(); }
    value_type* operator->() const { return &**this; }
    Iterator& operator++() {
      if (!loader_->next()) loader_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& iterator, std::default_sentinel_t) { return !iterator.loader_; }

   private:
    PreparedLoader* loader_;
  };

  /// Begins an epoch.
  Iterator begin() {
    feed_->set_epoch(epoch_++);
    hooks_.on_begin();
    feed_->start();
    has_size_ = feed_->num_batches().has_value();
    current_.reset();
    if (!has_size_) read_ahead();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }
  /// Batches of an epoch on this rank. Throws c10::TypeError for an iterable dataset.
  int64_t size() const {
    TORCH_CHECK_TYPE(feed_->num_batches(),
                     "[cohort] a DataLoader of an iterable dataset has no size, as the number of samples is not known");
    return *feed_->num_batches();
  }
  /// Sets the number of the next epoch, from 0.
  void set_next_epoch(int64_t epoch) { epoch_ = epoch; }
  /// In a loop over an iterable dataset its state is one batch ahead.
  BatchFeed& feed() const { return *feed_; }

 private:
  using Batch = typename Loader::Batch;

  bool next() {
    if (!has_size_) return next_of_unknown();
    if (!feed_->next()) return false;
    hooks_.on_batch(feed_->num_left() == 0);
    return true;
  }

  // Reads one batch ahead, as only that tells whether this batch is the last.
  bool next_of_unknown() {
    current_.reset();
    if (!has_next_) return false;
    current_.emplace(std::move(*static_cast<Batch*>(feed_->batch())));
    read_ahead();
    hooks_.on_batch(!has_next_);
    return true;
  }
  void read_ahead() {
    has_next_ = feed_->next();
    if (hooks_.do_all) has_next_ = hooks_.do_all(has_next_);
  }

  Batch& batch() { return current_ ? *current_ : *static_cast<Batch*>(feed_->batch()); }

  std::shared_ptr<LoaderFeed<Loader>> feed_;
  LoopHooks hooks_;
  int64_t epoch_ = 0;
  bool has_size_ = true;
  std::optional<Batch> current_;  ///< only if the size is not known
  bool has_next_ = false;
};

}  // namespace cohort::train
