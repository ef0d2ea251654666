/// How many ranks have used each parameter. See [Note: unused parameters] in overlap_engine.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <vector>

namespace c10d {
class Work;
}

namespace cohort::ddp {

class UseCounts {
 public:
  using AllReduce = std::function<c10::intrusive_ptr<c10d::Work>(const at::Tensor&)>;

  /// Begins to add up over the ranks which parameters were used, as int32 on `device`. Collective if `all_reduce` is.
  void begin(const std::vector<char>& is_used, c10::Device device, const AllReduce& all_reduce);
  /// The number of ranks that used parameter `index`, of the sum begun last; waits for it when first asked.
  int of(size_t index);
  /// Waits for the sum, if there is one that nobody waited for.
  void wait();
  /// The next question is about the sum that is begun next.
  void forget() { counts_.clear(); }

 private:
  at::Tensor sums_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::vector<int> counts_;  // empty until sums_ is known
};

}  // namespace cohort::ddp
