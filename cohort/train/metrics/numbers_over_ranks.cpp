#include "cohort/train/metrics/numbers_over_ranks.h"

#include <algorithm>

#include "cohort/comm/call/purpose.h"
#include "cohort/comm/group/group_backend.h"

namespace cohort::train {
namespace {

const comm::Purpose kMetricSum(16, "a metric's sum over the ranks", comm::Purpose::kByName);

c10::Device device_for_numbers(const Group& group, c10::Device device) {
  const auto devices = comm::resolve(group)->getDeviceTypes();
  const bool serves_cpu =
      std::any_of(devices.begin(), devices.end(), [](const c10::Device& served) { return served.is_cpu(); });
  return devices.empty() || serves_cpu ? c10::Device(c10::kCPU) : device;
}

}  // namespace

at::Tensor numbers_over_ranks(const at::Tensor& numbers, const Group& group, c10::Device device, ReduceOp op) {
  const at::Tensor all = numbers.to(device_for_numbers(group, device));
  const comm::CalledFor purpose(kMetricSum);
  all_reduce(all, {.op = op, .group = group});
  return all.cpu();
}

}  // namespace cohort::train
