/// DeviceCopies: copies batches to a device while the program still works on the batch before. It is untyped, and the same for
/// every accelerator.
///
/// The copies have a separate stream. The program's stream waits for them, but the program does not. The memory of a dropped
/// batch is not reused before the program's stream has finished with it. Copies overlap only if batches are in pinned memory.
///
/// Thread-safety: belongs to the thread that takes the batches.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "cohort/export.h"

namespace cohort::data::detail {

/// Moves a dense CPU tensor to pinned memory.
COHORT_API void pin(at::Tensor& tensor);

/// Calls the function with each tensor of a batch, which it may replace.
using VisitTensors = void (*)(void* batch, const std::function<void(at::Tensor&)>& fn);

class COHORT_API DeviceCopies {
 public:
  /// `device`: an accelerator; without an index, the current one of this thread.
  DeviceCopies(c10::Device device, VisitTensors visit);
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// Replaces the batch's tensors by their copies. Do not use them before finish().
  void begin(void* batch);
  /// Makes the current stream wait for the copies of the batch that has begun last.
  void finish(void* batch);

 private:
  struct Streams;
  const std::unique_ptr<Streams> streams_;
  const VisitTensors visit_;
};

}  // namespace cohort::data::detail
