/// Parameters that are shards, with gradients, without a strategy that made them.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::test {

/// This rank's rows of a tensor, as torch.chunk divides them: the last ranks may have none.
inline at::Tensor rows_of(const at::Tensor& full, const Group& group) {
  const int64_t num_rows = (full.size(0) + group->getSize() - 1) / group->getSize();
  const int64_t begin = std::min(full.size(0), num_rows * group->getRank());
  return full.narrow(0, begin, std::min(num_rows, full.size(0) - begin));
}

/// A shard of which the library knows while this lives.
class ShardedParameter {
 public:
  ShardedParameter(const at::Tensor& full, const Group& group)
      : group_(group), shard_(rows_of(full, group).detach().clone().set_requires_grad(true)) {
    parallel::note_sharded(shard_, group);
  }
  ~ShardedParameter() { parallel::forget_sharded(shard_); }
  ShardedParameter(const ShardedParameter&) = delete;
  ShardedParameter& operator=(const ShardedParameter&) = delete;

  void set_grad(const at::Tensor& full) { shard_.mutable_grad() = rows_of(full, group_).clone(); }
  const at::Tensor& shard() const { return shard_; }

 private:
  Group group_;
  at::Tensor shard_;
};

}  // namespace cohort::test
