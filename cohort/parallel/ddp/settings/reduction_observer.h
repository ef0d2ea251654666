/// What a reducer tells of a step's reduction, bucket by bucket.
#pragma once

#include <cstddef>
#include <vector>

namespace cohort::ddp {

class ReductionObserver {
 public:
  virtual ~ReductionObserver() = default;
  /// The gradients of these parameters of one bucket are now the average. In the order of the buckets, in the thread that ends
  /// backward, on every rank alike.
  virtual void on_bucket(const std::vector<size_t>& indices) = 0;
  /// All buckets are done, and backward returns.
  virtual void on_end() {}
};

}  // namespace cohort::ddp
