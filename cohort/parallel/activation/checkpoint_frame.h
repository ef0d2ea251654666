/// One call of a checkpointed function: the places of the tensors that autograd saved in it, and how they are recomputed.
///
/// A place is an object that autograd holds instead of a tensor, numbered in the order of saving. A pass is one backward pass,
/// identified by its number in LibTorch (a request outside of any is a pass of its own). The first request of a pass runs the
/// function again under hooks that fill the places which still exist; each request empties its place. Tensors left when the pass
/// ends are freed then, also if the graph is kept.
///
/// As [Nestable Checkpoint] in torch/utils/checkpoint.py. The inputs are saved as an operation would save them: inside another
/// checkpoint they are places of it, so a request goes outwards until it finds tensors that are there.
/// Thread-safety: requests may come from several threads; one of them runs the function, without a lock, and the others wait.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cohort/parallel/activation/checkpoint_options.h"
#include "cohort/parallel/activation/saved_tensor_hooks.h"

namespace cohort::activation {

/// Leaves the function once all tensors are there. Derives from std::exception, since backward's threads catch no other types.
struct StopRecomputation final : std::exception {
  const char* what() const noexcept override { return "the recomputation of a checkpoint has all it needs"; }
};

class CheckpointFrame : public std::enable_shared_from_this<CheckpointFrame> {
 public:
  using Recompute = std::function<void(const std::vector<at::Tensor>& inputs)>;

  CheckpointFrame(const std::vector<at::Tensor>& inputs, Recompute recompute, const CheckpointOptions& options);

  /// Makes a place for `tensor`, in forward.
  UnpackHook add_place(const at::Tensor& tensor);
  /// `operators`: the operators of forward, for messages.
  void finish_forward(std::vector<std::string> operators);

 private:
  class Place;

  struct Metadata {
    explicit Metadata(const at::Tensor& tensor);
    bool operator==(const Metadata&) const = default;
    std::string text() const;

    std::vector<int64_t> sizes;
    c10::ScalarType dtype;
    c10::Device device;
  };
  struct PlaceRecord {
    Metadata metadata;
    bool is_alive = true;
  };
  enum class SlotState { kEmpty, kFilled, kTaken };
  struct Slot {
    SlotState state = SlotState::kEmpty;
    at::Tensor tensor;
  };
  struct Recomputation {
    std::thread::id thread;
    bool is_complete = false;
    size_t num_saved = 0;
    std::map<size_t, Slot> slots;
    std::vector<std::string> operators;
  };
  using RecomputationPtr = std::shared_ptr<Recomputation>;

  at::Tensor take(size_t place);
  RecomputationPtr recomputed(int64_t pass);
  void run_again(const RecomputationPtr& recomputation);
  UnpackHook fill_place(Recomputation& recomputation, const at::Tensor& tensor);
  void check_match(const Recomputation& recomputation) const;
  void forget(size_t place);
  void end_pass(int64_t pass);
  [[noreturn]] void fail(const Recomputation& recomputation, const std::string& what) const;

  const std::vector<torch::autograd::SavedVariable> inputs_;
  const Recompute recompute_;
  const CheckpointOptions options_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<PlaceRecord> places_;
  std::map<int64_t, RecomputationPtr> recomputations_;
  bool is_forward_complete_ = false;
  bool ignores_number_ = false;
  std::vector<std::string> forward_operators_;
};

}  // namespace cohort::activation
