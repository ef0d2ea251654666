/// The interface through which a reducer reports a step's reduction, bucket by bucket.
#pragma once

#include <cstddef>
#include <vector>

namespace cohort::ddp {

class ReductionObserver {
 public:
  virtual ~ReductionObserver() = default;
  /// Reports that the gradients of these parameters of one bucket are now averaged. Called in the order of the buckets, in the
  /// thread that ends backward, in the same order on every rank.
  virtual void on_bucket(const std::vector<size_t>& indices) = 0;
  /// Reports that all buckets are done, before backward returns.
  virtual void on_end() {}
};

}  // namespace cohort::ddp
