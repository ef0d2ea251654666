#include "cohort/comm/group/device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <limits>
#include <string>

#include "cohort/base/env.h"
#include "cohort/base/text.h"
#include "cohort/rendezvous/launch_environment.h"

namespace cohort {
namespace {

constexpr int kNone = -1;

// The last choice of any thread. Relaxed, because no other data depends on it.
std::atomic<int> last_choice{kNone};
thread_local bool thread_has_chosen = false;

// Null without a GPU. CUDA's part of LibTorch registers itself, so no CUDA library is named here.
const c10::impl::DeviceGuardImplInterface* gpus() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return nullptr;
  const auto* impl = c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
  return impl->deviceCount() > 0 ? impl : nullptr;
}

c10::Device gpu(int index) { return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)}; }

int default_index(int count) {
  const int chosen = last_choice.load(std::memory_order_relaxed);
  if (chosen != kNone) return chosen;
  const auto local_rank = base::env_int("LOCAL_RANK", 0, std::numeric_limits<int>::max());
  TORCH_CHECK_VALUE(local_rank.ok(), local_rank.error().describe());
  if (local_rank.value()) return static_cast<int>(*local_rank.value() % count);
  return static_cast<int>(base::parse_int(rendezvous::LaunchEnvironment().get("LOCAL_RANK").value_or("0")).value_or(0) %
                          count);
}

}  // namespace

void set_device(int index) {
  TORCH_CHECK_VALUE(index >= 0, "Invalid device index ", index, ": it must not be negative");
  const auto* impl = gpus();
  if (!impl) return;
  const int count = impl->deviceCount();
  TORCH_CHECK_VALUE(index < count, "Invalid device index ", index, ": this process sees ", count,
                    count == 1 ? " GPU" : " GPUs", ", numbered from 0\n  hint: check CUDA_VISIBLE_DEVICES");
  impl->setDevice(gpu(index));
  thread_has_chosen = true;
  last_choice.store(index, std::memory_order_relaxed);
}

void set_device(c10::Device device) {
  if (device.is_cpu()) return;
  TORCH_CHECK_VALUE(device.is_cuda(), "Invalid device ", device.str(), ": it must be cpu or cuda");
  TORCH_CHECK_VALUE(gpus(), "Invalid device ", device.str(),
                    ": this process sees no GPU\n  hint: check nvidia-smi, CUDA_VISIBLE_DEVICES and that LibTorch is a "
                    "CUDA build");
  if (device.has_index()) set_device(static_cast<int>(device.index()));
}

c10::Device current_device() {
  const auto* impl = gpus();
  if (!impl) return c10::DeviceType::CPU;
  const auto current = impl->getDevice();
  // Number 0 is where every thread begins.
  if (thread_has_chosen || current.index() != 0) return current;
  const auto wanted = gpu(default_index(impl->deviceCount()));
  if (wanted != current) impl->setDevice(wanted);
  thread_has_chosen = true;
  return wanted;
}

}  // namespace cohort
