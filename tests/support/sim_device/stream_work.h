/// What a collective of StreamBackend returns; as ProcessGroupNCCL::WorkNCCL, wait() makes the current stream wait, not the host.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

namespace cohort::sim {

class StreamWork final : public c10d::Work {
 public:
  /// `stream` holds the collective.
  StreamWork(const c10::Stream& stream, std::vector<at::Tensor> outputs);

  bool isCompleted() override { return end_.query(); }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::Stream stream_;
  c10::Event end_;
  std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace cohort::sim
