/// Streams, for gradients on an accelerator. Hooks run in the streams of the forward functions, on one thread per device, so the
/// stream of one hook says nothing about the stream of the next. On the CPU all of this does nothing.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "cohort/export.h"

namespace cohort::ddp {

/// The streams that have filled a bucket's slots since the last reduction.
class FillingStreams {
 public:
  /// Notes that the current stream has filled a slot of a bucket on `device` whose memory is `contents`.
  void add_current(c10::Device device, const at::Tensor& contents);
  /// Returns the stream to reduce in: the last one that filled, which waits for the others. Absent on the CPU. The next fill
  /// starts a new list.
  std::optional<c10::Stream> join();

 private:
  std::vector<c10::Stream> streams_;  // the last to fill at the end
};

/// The caller's streams, in which the program itself works on gradients, above all its optimizer.
class COHORT_TEST_API CallerStreams {
 public:
  explicit CallerStreams(const std::vector<at::Tensor>& parameters);
  /// Notes the calling thread's current stream of each accelerator that holds parameters.
  void remember();
  /// Absent on the CPU.
  std::optional<c10::Stream> on(c10::Device device) const;
  /// Returns uninitialized memory of the caller's stream for a parameter's gradient, which the current stream may write.
  at::Tensor make_like(const at::Tensor& parameter) const;

 private:
  std::vector<c10::Device> devices_;
  std::vector<c10::Stream> streams_;  // by the index in devices_
};

/// Keeps the memory, once freed, from its next owner until the current stream's work on it is done. For memory that may have been
/// allocated in another stream. No effect on undefined and sparse tensors.
COHORT_TEST_API void used_in_current_stream(const at::Tensor& tensor);

}  // namespace cohort::ddp
