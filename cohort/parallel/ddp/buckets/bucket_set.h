/// BucketSet: the buckets of a plan, the place of each gradient in them, and the progress of a step: which gradients have
/// arrived, and which bucket is launched next.
/// Thread-safety: none; the engine's lock protects it.
#pragma once

#include <cstddef>
#include <vector>

#include "cohort/parallel/ddp/buckets/bucket.h"
#include "cohort/parallel/ddp/buckets/bucket_plan.h"
#include "cohort/parallel/ddp/buckets/engine_input.h"

namespace cohort::ddp {

class BucketSet {
 public:
  struct Place {
    size_t bucket = 0;
    size_t slot = 0;
  };

  /// `input` must outlive this.
  explicit BucketSet(const EngineInput& input);

  /// Makes the buckets of `plan`; gradients that live in earlier buckets move into them. `has_hook`: a communication hook will
  /// see the buckets, so no gradient is reduced in place. Collective.
  void install(const BucketPlan& plan, bool has_hook);
  BucketPlan plan() const;
  bool has_in_place() const;

  size_t size() const { return buckets_.size(); }
  Bucket& operator[](size_t index) { return buckets_[index]; }
  std::vector<Bucket>::iterator begin() { return buckets_.begin(); }
  std::vector<Bucket>::iterator end() { return buckets_.end(); }

  /// Begins a step: no gradient has arrived.
  void prepare();
  bool is_ready(size_t index) const { return is_ready_[index] != 0; }
  /// A flag per parameter.
  const std::vector<char>& ready_flags() const { return is_ready_; }
  /// Notes that the gradient of parameter `index` has arrived; returns its place.
  Place note_ready(size_t index) {
    is_ready_[index] = 1;
    return places_[index];
  }

  /// The next bucket to launch: buckets are launched strictly in order.
  size_t next() const { return next_; }
  bool is_next_full() const { return next_ < buckets_.size() && buckets_[next_].num_pending == 0; }
  void advance() { ++next_; }
  bool are_all_launched() const { return next_ == buckets_.size(); }

  void forget_reductions();
  /// For reductions that failed, or to which other ranks may still come. See Bucket::abandon().
  void abandon_gradients();

 private:
  Bucket make_bucket(const std::vector<size_t>& indices, const std::vector<char>& in_place, bool has_hook) const;

  const EngineInput& input_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;   // by parameter
  std::vector<char> is_ready_;  // by parameter
  size_t next_ = 0;
};

}  // namespace cohort::ddp
