#include "cohort/train/metrics/numbers_over_ranks.h"

#include "cohort/comm/call/purpose.h"
#include "cohort/comm/group/group_backend.h"

namespace cohort::train {
namespace {

const comm::Purpose kMetricSum(16, "a metric's sum over the ranks", comm::Purpose::kByName);

}  // namespace

at::Tensor numbers_over_ranks(const at::Tensor& numbers, const Group& group, c10::Device device, ReduceOp op) {
  const bool serves_cpu = comm::device_for_host_data(group).is_cpu();
  const at::Tensor all = numbers.to(serves_cpu ? c10::Device(c10::kCPU) : device);
  const comm::CalledFor purpose(kMetricSum);
  all_reduce(all, {.op = op, .group = group});
  return all.cpu();
}

}  // namespace cohort::train
