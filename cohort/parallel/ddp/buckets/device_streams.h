/// Streams, where gradients live on an accelerator. Hooks run in the streams of the forward functions, on one thread per device,
/// so what one hook does to a bucket says nothing about the stream of the next. Nothing here does anything on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "cohort/export.h"

namespace cohort::ddp {

/// The streams that a bucket's slots have been filled in since the last reduction.
class FillingStreams {
 public:
  /// The current stream has filled a slot of a bucket on `device` whose memory is `contents`.
  void add_current(c10::Device device, const at::Tensor& contents);
  /// The stream to reduce in: the last one, which waits for the others. Null where there is none. The next fill begins anew.
  std::optional<c10::Stream> join();

 private:
  std::vector<c10::Stream> streams_;  // the last to fill at the end
};

/// The caller's streams: where the program itself, its optimizer above all, works on gradients.
class COHORT_TEST_API CallerStreams {
 public:
  explicit CallerStreams(const std::vector<at::Tensor>& parameters);
  /// Takes the calling thread's current stream of each accelerator that holds parameters.
  void remember();
  /// Null on the CPU.
  std::optional<c10::Stream> on(c10::Device device) const;
  /// Memory of the caller's stream for the gradient of a parameter, its content undefined, which the current stream may write.
  at::Tensor make_like(const at::Tensor& parameter) const;

 private:
  std::vector<c10::Device> devices_;
  std::vector<c10::Stream> streams_;  // by the index in devices_
};

/// Keeps the memory, once freed, from its next owner until the current stream's work on it is done; for memory that may have
/// been allocated in another stream. No effect on undefined and sparse tensors.
COHORT_TEST_API void used_in_current_stream(const at::Tensor& tensor);

}  // namespace cohort::ddp
