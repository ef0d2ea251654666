/// The arguments that the group's operations, sends and receives share.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cohort/shm/terms/types.h"

namespace cohort::shm {

struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = {};
  /// The call's record, from trace().schedule(). 0 means that the operation makes one.
  uint64_t trace_id = 0;
  /// The address in the program from which the call came. Null if it is unknown.
  const void* call_site = nullptr;
  /// See PurposeTexts.
  uint8_t purpose = 0;
  /// Whether the core is free for this call: neither this rank nor another one needs it, so waiting may keep it for a while.
  bool keeps_core = false;
  /// Called about every 250 ms while waiting. Returns why the call can never end, or an empty text.
  const std::function<std::string()>* find_obstacle = nullptr;
};

/// A reduction. `factor` is this rank's factor for kPremulSum.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double factor = 1.0;
};

/// The tensor on which an operation works.
struct Elements {
  DType dtype = DType::kBytes;
  size_t count = 0;
  size_t num_bytes() const { return count * size_of(dtype); }
};

}  // namespace cohort::shm
