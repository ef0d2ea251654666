/// DeviceCopies brings batches to a device while the program still works on the one before. Untyped, and the same for every
/// accelerator.
///
/// The copies have a stream of their own. The program's stream waits for them, not the program; and the memory of a batch, once
/// dropped, is not given to the next copy before the program's stream has done with it. To overlap, batches are in pinned memory.
///
/// Thread-safety: belongs to the thread that takes the batches.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>

#include "cohort/export.h"

namespace cohort::data::detail {

/// Moves it to pinned memory, if it is a dense CPU tensor.
COHORT_API void pin(at::Tensor& tensor);

/// Calls the function with each tensor of a batch, which it may replace.
using VisitTensors = void (*)(void* batch, const std::function<void(at::Tensor&)>& fn);

class COHORT_API DeviceCopies {
 public:
  /// `device`: of an accelerator; without an index, the current one of the calling thread.
  DeviceCopies(c10::Device device, VisitTensors visit);
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  /// Puts the copies of the batch's tensors in their place. Until finish() nobody may use them.
  void begin(void* batch);
  /// What the current stream does from here on finds them complete. For the batch that has begun last.
  void finish(void* batch);

 private:
  struct Streams;
  const std::unique_ptr<Streams> streams_;
  const VisitTensors visit_;
};

}  // namespace cohort::data::detail
