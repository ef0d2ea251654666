#include "cohort/checkpoint/checkpointer/rank_talk.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/group/subgroups.h"

namespace cohort::checkpoint {

RankTalk::RankTalk(const std::string& purpose) {
  if (!is_initialized() || get_world_size() == 1) return;
  // Tensors lie on the CPU, whatever the default group is for.
  group_ = new_group({}, {.backend = get_backend() == "shm" ? "shm" : "gloo", .group_desc = purpose});
  rank_ = get_rank(group_);
  size_ = get_world_size(group_);
}

std::string RankTalk::from_first(const std::string& text) const {
  if (!group_) return text;
  BytesList list{text};
  broadcast_object_list(list, group_rank(0), {.group = group_});
  return list.front();
}

std::vector<std::string> RankTalk::from_all(const std::string& text) const {
  BytesList list(size_, text);
  if (group_) all_gather_object(list, text, {.group = group_});
  return list;
}

std::vector<int64_t> RankTalk::largest(std::vector<int64_t> numbers) const {
  if (!group_) return numbers;
  const at::Tensor tensor = at::tensor(numbers, at::kLong);
  all_reduce(tensor, {.op = ReduceOp::MAX, .group = group_});
  std::copy_n(tensor.const_data_ptr<int64_t>(), numbers.size(), numbers.begin());
  return numbers;
}

void RankTalk::set_timeout(std::chrono::milliseconds timeout) const {
  if (group_) set_pg_timeout(timeout, group_);
}

}  // namespace cohort::checkpoint
