/// SideStream: on an accelerator, a stream for communication besides that of the program. On the CPU it has no effect, and work
/// runs in the calling thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <memory>
#include <optional>

namespace cohort::fsdp {

class SideStream {
 public:
  SideStream() = default;
  /// Takes a stream of `device`'s pool.
  explicit SideStream(c10::Device device);
  explicit SideStream(std::optional<c10::Stream> stream) : stream_(stream) {}

  explicit operator bool() const { return stream_.has_value(); }
  /// Makes later work in this stream wait for the work already queued in the current stream.
  void wait_for_current() const;
  /// Makes the current stream wait for the work already queued in this one.
  void block_current() const;
  void wait_for(c10::Event& event) const;

  /// A point in this stream's queue for which the current stream can wait later.
  class Mark {
   public:
    void block_current();

   private:
    friend class SideStream;
    std::shared_ptr<c10::Event> event_;
    std::optional<c10::Stream> stream_;
  };
  Mark mark() const;

  /// Makes it the current stream.
  class Scope {
   public:
    explicit Scope(const SideStream& side) {
      if (side.stream_) guard_.emplace(*side.stream_);
    }

   private:
    std::optional<c10::StreamGuard> guard_;
  };

 private:
  std::optional<c10::Stream> stream_;
};

/// Keeps the tensor's memory, once freed, from its next owner until the current stream has done the work queued by then. No
/// effect on undefined tensors and on the CPU.
void used_in_current_stream(const at::Tensor& tensor);

}  // namespace cohort::fsdp
