/// PendingPasses: forward passes whose backward pass is still to come. With several of them each is averaged, and not
/// only the first.
///
/// A pass is over once a backward pass has come to one of its outputs, or nobody has its graph any more. Where there is never
/// more than one, nothing is hung on its graph.
/// Thread-safety: as of a module's forward and backward pass; a backward pass may run in several threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace cohort::ddp {

class PendingPasses {
 public:
  /// `at_end`: called at the end of each backward pass that comes to one of several, after all else that waits for this end.
  explicit PendingPasses(std::function<void()> at_end);
  ~PendingPasses();

  /// A forward pass has recorded its graph. `is_averaged`: it was not under no_sync(). `has_reduced`: the averaged pass before it
  /// has had its backward pass, if it was the only one.
  void add(const std::vector<at::Tensor>& outputs, bool is_averaged, bool has_reduced);
  /// A backward pass brings gradients: if there is but one pass, it is this one's, and over.
  void note_gradient();
  /// The backward pass has ended. Those that it came to are over if `has_reduced`; otherwise it was another kind of pass, such as
  /// that of a gradient penalty. Returns whether one is left that is to be averaged.
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
