/// CommContext: shared by the groups of one root: the streams of their collectives, and the reductions in flight (PyTorch's
/// FSDPCommContext).
#pragma once

#include <c10/core/Device.h>

#include <deque>
#include <functional>

#include "cohort/parallel/fsdp/settings/side_stream.h"

namespace cohort::fsdp {

struct CommContext {
  explicit CommContext(c10::Device device) : device(device), gather_stream(device), reduce_stream(device) {}

  /// A reduction of a group, which recognizes itself by the address.
  struct Reduction {
    const void* owner;
    std::function<void()> finish;
  };

  c10::Device device;
  SideStream gather_stream;
  SideStream reduce_stream;
  /// The number of reductions that may be in flight at once.
  size_t max_reductions = 1;
  /// The remaining work of each reduction, oldest first.
  std::deque<Reduction> reductions;

  /// Finishes reductions until at most `count` are in flight.
  void finish_reductions(size_t count = 0) {
    while (reductions.size() > count) {
      const auto reduction = std::move(reductions.front());
      reductions.pop_front();
      reduction.finish();
    }
  }
};

}  // namespace cohort::fsdp
