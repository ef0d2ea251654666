#include "cohort/parallel/fsdp/host/replica_sum.h"

#include <ATen/ATen.h>

#include <map>
#include <utility>

#include "cohort/parallel/fsdp/settings/purpose.h"

namespace cohort::fsdp {

ReplicaSum::ReplicaSum(std::vector<Part> parts, const Group& replica_group) : parts_(std::move(parts)) {
  int64_t size = 0;
  for (const auto& part : parts_) size += c10::multiply_integers(part.sizes) + 1;
  flat_ = at::zeros({size}, parts_.front().dtype);
  int64_t begin = 0;
  for (const auto& part : parts_) {
    const auto count = c10::multiply_integers(part.sizes);
    if (part.sum.defined()) {
      flat_.narrow(0, begin, count).copy_(part.sum.view({-1}));
      flat_[begin + count].fill_(1);
    }
    begin += count + 1;
  }
  for (auto& part : parts_) part.sum.reset();
  const comm::CalledFor purpose(kExchange);
  work_ = all_reduce(flat_, {.group = replica_group, .async_op = true});
}

void ReplicaSum::wait(const std::function<void(size_t index, at::Tensor sum)>& give) {
  if (work_) work_->wait();
  int64_t begin = 0;
  for (const auto& part : parts_) {
    const auto count = c10::multiply_integers(part.sizes);
    const bool is_used = flat_[begin + count].item<double>() != 0;
    // A copy, since the flat memory would live as long as any view of it.
    if (is_used) give(part.index, flat_.narrow(0, begin, count).view(part.sizes).clone());
    begin += count + 1;
  }
}

std::vector<std::vector<ReplicaSum::Part>> by_dtype(std::vector<ReplicaSum::Part> parts) {
  std::map<c10::ScalarType, std::vector<ReplicaSum::Part>> lists;
  for (auto& part : parts) lists[part.dtype].push_back(std::move(part));
  std::vector<std::vector<ReplicaSum::Part>> result;
  for (auto& [dtype, list] : lists) result.push_back(std::move(list));
  return result;
}

}  // namespace cohort::fsdp
