#include "cohort/parallel/pipeline/step_failure.h"

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/group/device.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/parallel/pipeline/purpose.h"

namespace cohort::pipeline {
namespace {

c10::Device device_of_numbers(const Group& group) {
  const auto devices = (group ? group : default_group())->getDeviceTypes();
  const bool serves_cpu = devices.empty() || std::any_of(devices.begin(), devices.end(),
                                                         [](const auto& device) { return device.is_cpu(); });
  return serves_cpu ? c10::Device(c10::kCPU) : current_device();
}

std::string text_of_all(const BytesList& texts) {
  std::string message;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    message += message.empty() ? "[cohort] pipeline: " : "\n";
    message += fmt::format("the step failed on rank {}: {}", rank, texts[rank]);
  }
  return message;
}

}  // namespace

void StepFailure::note(const std::exception_ptr& error, const std::string& what) {
  try {
    std::rethrow_exception(error);
  } catch (c10::Error& c10_error) {
    if (!what.empty()) c10_error.add_context(what);
    if (leaves_at_once_ || dynamic_cast<const c10::DistBackendError*>(&c10_error) != nullptr) throw;
    own_ = std::current_exception();
  } catch (...) {
    if (leaves_at_once_) throw;
    own_ = error;
  }
}

void StepFailure::share(const Group& group, int group_size) const {
  if (group_size > 1) {
    const comm::CalledFor purpose(kStepAgreement);
    const auto numbers = at::TensorOptions(at::kInt).device(device_of_numbers(group));
    const at::Tensor num_failed = at::full({1}, own_ ? 1 : 0, numbers);
    all_reduce(num_failed, {.group = group});
    if (num_failed.item<int>() == 0) return;
    std::string own = own_ ? comm::text_of(own_) : "";
    if (own_ && own.empty()) own = "an exception without a text";
    BytesList texts(static_cast<size_t>(group_size));
    all_gather_object(texts, own, {.group = group});
    // Where several have failed, one may be for what another one did not send: all are told of all.
    if (!own_ || num_failed.item<int>() > 1) TORCH_CHECK(false, text_of_all(texts));
  }
  if (own_) std::rethrow_exception(own_);
}

}  // namespace cohort::pipeline
