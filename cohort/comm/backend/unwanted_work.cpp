#include "cohort/comm/backend/unwanted_work.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace cohort::comm {
namespace {

class FinishedWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds) override { return true; }
  std::vector<at::Tensor> result() override { refuse(); }
  void abort() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    TORCH_CHECK(false,
                "[cohort] the Work of a synchronous operation has neither results nor a future: the results are in the "
                "tensors. "
                "Call it with async_op = true for a Work that has both");
  }
};

}  // namespace

// Never destroyed: a program may call collectives until its very end.
const c10::intrusive_ptr<c10d::Work>& finished_work() {
  static const auto* const work = new c10::intrusive_ptr<c10d::Work>(c10::make_intrusive<FinishedWork>());
  return *work;
}

}  // namespace cohort::comm
