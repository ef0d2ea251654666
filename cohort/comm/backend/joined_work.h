/// JoinedWork: one Work for several operations of an engine.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

namespace cohort::comm {

/// Completes when the last of `works` (at least one) does; fails with the error of the first failed one.
class JoinedWork final : public c10d::Work {
 public:
  explicit JoinedWork(std::vector<c10::intrusive_ptr<c10d::Work>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  /// Returns the first work's result.
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  /// `timeout` applies to each work.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  /// The future's value is the first work's.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace cohort::comm
