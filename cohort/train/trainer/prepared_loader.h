/// PreparedLoader: a DataLoader as an Accelerator gives it: each epoch in its own order, and somebody hears of the last batch.
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

#include "cohort/train/trainer/batch_feed.h"

namespace cohort::train {

template <class Loader>
class PreparedLoader {
 public:
  /// `note` is called with each batch: whether it is the epoch's last.
  PreparedLoader(const Loader& loader, std::function<void(bool is_last)> note)
      : feed_(std::make_shared<LoaderFeed<Loader>>(loader)), note_(std::move(note)) {}

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = typename Loader::Batch;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(PreparedLoader* loader) : loader_(loader) { ++*this; }
    value_type& operator*() const { return *static_cast<value_type*>(loader_->feed_->batch()); }
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
    set_epoch(*feed_, epoch_++);
    size_ = feed_->num_batches();
    num_taken_ = 0;
    feed_->start();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }
  /// Batches of an epoch on this rank. Throws c10::TypeError for an iterable dataset.
  int64_t size() const {
    TORCH_CHECK_TYPE(feed_->num_batches(),
                     "a DataLoader of an iterable dataset has no size: nobody knows how many samples come");
    return *feed_->num_batches();
  }
  /// The epoch that comes next, from 0.
  void set_next_epoch(int64_t epoch) { epoch_ = epoch; }
  BatchFeed& feed() const { return *feed_; }

 private:
  bool next() {
    if (!feed_->next()) return false;
    ++num_taken_;
    note_(size_ && num_taken_ == *size_);
    return true;
  }

  std::shared_ptr<LoaderFeed<Loader>> feed_;
  std::function<void(bool is_last)> note_;
  int64_t epoch_ = 0;
  int64_t num_taken_ = 0;
  std::optional<int64_t> size_;
};

}  // namespace cohort::train
