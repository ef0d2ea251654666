#include "cohort/parallel/ddp/use_counts.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <utility>

namespace cohort::ddp {

void UseCounts::begin(const std::vector<char>& is_used, c10::Device device, const AllReduce& all_reduce) {
  const std::vector<int> used(is_used.begin(), is_used.end());
  sums_ = at::tensor(used, at::kInt).to(device);
  work_ = all_reduce(sums_);
}

int UseCounts::of(size_t index) {
  if (counts_.empty()) {
    wait();
    const auto on_cpu = sums_.to(at::kCPU);
    counts_.assign(on_cpu.const_data_ptr<int>(), on_cpu.const_data_ptr<int>() + on_cpu.numel());
  }
  return counts_[index];
}

void UseCounts::wait() {
  if (work_) std::exchange(work_, {})->wait();
}

}  // namespace cohort::ddp
