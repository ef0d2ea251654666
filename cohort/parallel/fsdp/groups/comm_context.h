/// CommContext: what the groups of one root share: the streams of their collectives, and the reductions that are on their way
/// (PyTorch's FSDPCommContext).
#pragma once

#include <c10/core/Device.h>

#include <deque>
#include <functional>

#include "cohort/parallel/fsdp/settings/side_stream.h"

namespace cohort::fsdp {

struct CommContext {
  explicit CommContext(c10::Device device) : device(device), gather_stream(device), reduce_stream(device) {}

  /// Of a group, which knows itself by the address.
  struct Reduction {
    const void* owner;
    std::function<void()> finish;
  };

  c10::Device device;
  SideStream gather_stream;
  SideStream reduce_stream;
  /// How many reductions may be on their way at once.
  size_t max_reductions = 1;
  /// What is left to do of each, oldest first.
  std::deque<Reduction> reductions;

  /// Finishes reductions until at most `count` are left.
  void finish_reductions(size_t count = 0) {
    while (reductions.size() > count) {
      const auto reduction = std::move(reductions.front());
      reductions.pop_front();
      reduction.finish();
    }
  }
};

}  // namespace cohort::fsdp
