/// JoinedWork: several operations of an engine as one.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

namespace cohort::comm {

/// Completes when the last of `works` (at least one) does; fails as the first of them that failed.
class JoinedWork final : public c10d::Work {
 public:
  explicit JoinedWork(std::vector<c10::intrusive_ptr<c10d::Work>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  /// That of the first.
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  /// `timeout` is for each of them.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  /// Its value is that of the first.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace cohort::comm
