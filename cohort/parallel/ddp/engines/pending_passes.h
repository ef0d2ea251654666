/// PendingPasses: forward passes whose backward pass is still to come. If there are several, each of them is averaged, not only
/// the first.
///
/// A pass is over once a backward pass has come to one of its outputs, or nobody holds its graph any more. If there is only one
/// pass, its graph gets no hook.
/// Thread-safety: as of a module's forward and backward pass; a backward pass may run in several threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace cohort::ddp {

class PendingPasses {
 public:
  /// `at_end`: called at the end of each backward pass that comes to one of several passes, after everything else that waits for
  /// this end.
  explicit PendingPasses(std::function<void()> at_end);
  ~PendingPasses();

  /// Notes that a forward pass has recorded its graph. `is_averaged`: it was not under no_sync(). `has_reduced`: the averaged
  /// pass before it has had its backward pass, if it was the only one.
  void add(const std::vector<at::Tensor>& outputs, bool is_averaged, bool has_reduced);
  /// Notes that a backward pass brings gradients: if there is only one forward pass, it belongs to it, and that pass is over.
  void note_gradient();
  /// Notes that the backward pass has ended. If `has_reduced`, the forward passes that it came to are over; otherwise it was
  /// another kind of pass, such as that of a gradient penalty. Returns whether a pass is left that is to be averaged.
  bool finish(bool has_reduced);
  void clear();

 private:
  struct Pass;
  struct End;
  void watch(Pass& pass);

  std::shared_ptr<End> end_;
  std::vector<Pass> passes_;
};

}  // namespace cohort::ddp
