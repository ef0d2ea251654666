// An iterable dataset, of which nobody knows how long it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "cohort/data/loader/data_loader.h"
#include "tests/train/trainer/small_task.h"

namespace cohort::train::test {

class NumberStream {
 public:
  // `part` of `num_parts` equal ones of small_data(count); the first part has `more` samples of the next one besides.
  explicit NumberStream(int64_t count, int64_t part = 0, int64_t num_parts = 1, int64_t more = 0)
      : tensors_(small_data(count).tensors()), first_(part * (count / num_parts)), count_(count / num_parts) {
    if (part == 0) count_ += more;
  }

  class Iterator {
   public:
    explicit Iterator(const NumberStream& stream) : stream_(stream) {}
    std::optional<std::tuple<at::Tensor, at::Tensor>> next() {
      if (given_ == stream_.count_) return std::nullopt;
      const int64_t index = stream_.first_ + given_++;
      return std::tuple(stream_.tensors_[0][index], stream_.tensors_[1][index]);
    }

   private:
    const NumberStream& stream_;
    int64_t given_ = 0;
  };
  Iterator iterate() const { return Iterator(*this); }

 private:
  std::remove_cvref_t<decltype(small_data(1).tensors())> tensors_;
  int64_t first_;
  int64_t count_;
};

}  // namespace cohort::train::test
