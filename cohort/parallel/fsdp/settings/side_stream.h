/// SideStream: on an accelerator, a stream beside that of the program, in which communication runs. On the CPU nothing: what is
/// called in it runs in the calling thread.
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
  /// A stream of `device`'s pool.
  explicit SideStream(c10::Device device);
  explicit SideStream(std::optional<c10::Stream> stream) : stream_(stream) {}

  explicit operator bool() const { return stream_.has_value(); }
  /// What is called in it from now on waits for what the current stream has been told to do.
  void wait_for_current() const;
  /// The current stream waits for what this one has been told to do.
  void block_current() const;
  void wait_for(c10::Event& event) const;

  /// A point in what it has been told to do, for which the current stream can wait later.
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

/// Its memory is kept from others, once freed, until the current stream has done what it has been told to do by then. Nothing for
/// undefined tensors and on the CPU.
void used_in_current_stream(const at::Tensor& tensor);

}  // namespace cohort::fsdp
