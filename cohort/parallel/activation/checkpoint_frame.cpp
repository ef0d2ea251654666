#include "cohort/parallel/activation/checkpoint_frame.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <utility>

#include "cohort/parallel/activation/operator_log.h"

namespace cohort::activation {
namespace {

constexpr const char* kUnexpected = "Something went unexpectedly wrong in activation checkpoint.";

std::vector<torch::autograd::SavedVariable> saved_inputs(const std::vector<at::Tensor>& inputs) {
  std::vector<torch::autograd::SavedVariable> saved;
  saved.reserve(inputs.size());
  for (const at::Tensor& input : inputs) saved.emplace_back(input, /*is_output=*/false);
  return saved;
}

// Returns a number of its own for each request outside backward.
int64_t number_of_lone_request() {
  static std::atomic<int64_t> last{0};
  return last.fetch_sub(1, std::memory_order_relaxed) - 1;
}

std::string list_of(const std::vector<std::string>& operators) {
  std::string text;
  for (const auto& name : operators) text += name + "\n";
  return text;
}

}  // namespace

class CheckpointFrame::Place {
 public:
  Place(std::shared_ptr<CheckpointFrame> frame, size_t number) : frame_(std::move(frame)), number_(number) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { frame_->forget(number_); }
  at::Tensor take() const { return frame_->take(number_); }

 private:
  const std::shared_ptr<CheckpointFrame> frame_;
  const size_t number_;
};

CheckpointFrame::Metadata::Metadata(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()), dtype(tensor.scalar_type()), device(tensor.device()) {}

std::string CheckpointFrame::Metadata::text() const {
  std::string shape;
  for (const int64_t size : sizes) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  const std::string index = device.has_index() ? ", index=" + std::to_string(device.index()) : "";
  return "{'shape': torch.Size([" + shape + "]), 'dtype': torch." + std::string(c10::getDtypeNames(dtype).first) +
         ", 'device': device(type='" + c10::DeviceTypeName(device.type(), /*lower_case=*/true) + "'" + index + ")}";
}

CheckpointFrame::CheckpointFrame(const std::vector<at::Tensor>& inputs, Recompute recompute,
                                 const CheckpointOptions& options)
    : inputs_(saved_inputs(inputs)), recompute_(std::move(recompute)), options_(options) {}

UnpackHook CheckpointFrame::add_place(const at::Tensor& tensor) {
  Metadata metadata(tensor);
  size_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = places_.size();
    places_.push_back({std::move(metadata)});
  }
  return [place = std::make_shared<const Place>(shared_from_this(), number)] { return place->take(); };
}

void CheckpointFrame::finish_forward(std::vector<std::string> operators) {
  const std::lock_guard lock(mutex_);
  is_forward_complete_ = true;
  forward_operators_ = std::move(operators);
}

at::Tensor CheckpointFrame::take(size_t place) {
  const int64_t task = torch::autograd::get_current_graph_task_id();
  const bool is_in_backward = task >= 0;
  const int64_t pass = is_in_backward ? task : number_of_lone_request();
  const RecomputationPtr recomputation = recomputed(pass);
  at::Tensor tensor;
  bool is_taken = false;
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = recomputation->slots[place];
    is_taken = slot.state == SlotState::kTaken;
    if (slot.state == SlotState::kFilled) tensor = std::move(slot.tensor);
    slot = {SlotState::kTaken, {}};
  }
  if (!is_in_backward) end_pass(pass);
  if (is_taken) {
    fail(*recomputation,
         "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. If you are "
         "calling ctx.saved_tensors in backward, make sure to do so only once.");
  }
  TORCH_CHECK(tensor.defined(), kUnexpected);
  return tensor;
}

CheckpointFrame::RecomputationPtr CheckpointFrame::recomputed(int64_t pass) {
  RecomputationPtr recomputation;
  {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto found = recomputations_.find(pass);
      if (found == recomputations_.end()) break;
      if (found->second->is_complete) return found->second;
      TORCH_CHECK(found->second->thread != std::this_thread::get_id(), kUnexpected);
      changed_.wait(lock);
    }
    recomputation = std::make_shared<Recomputation>();
    recomputation->thread = std::this_thread::get_id();
    recomputations_.emplace(pass, recomputation);
  }
  try {
    if (pass >= 0) {
      torch::autograd::Engine::get_default_engine().queue_callback([frame = weak_from_this(), pass] {
        if (const auto alive = frame.lock()) alive->end_pass(pass);
      });
    }
    run_again(recomputation);
    check_match(*recomputation);
  } catch (...) {
    end_pass(pass);
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    recomputation->is_complete = true;
  }
  changed_.notify_all();
  return recomputation;
}

void CheckpointFrame::run_again(const RecomputationPtr& recomputation) {
  std::vector<at::Tensor> inputs;
  inputs.reserve(inputs_.size());
  for (const auto& input : inputs_) inputs.push_back(input.unpack());
  const OperatorLog log(options_.debug);
  const auto keep_operators = [&] { recomputation->operators = log.operators(); };
  try {
    const SavedTensorHooks hooks([frame = shared_from_this(), recomputation](const at::Tensor& tensor) {
      return frame->fill_place(*recomputation, tensor);
    });
    const at::AutoGradMode with_gradients(true);
    recompute_(inputs);
    keep_operators();
  } catch (const StopRecomputation&) {
    keep_operators();  // all tensors are there
  } catch (const CheckpointError&) {
    keep_operators();
    throw;
  }
}

UnpackHook CheckpointFrame::fill_place(Recomputation& recomputation, const at::Tensor& tensor) {
  at::Tensor kept = tensor.requires_grad() ? tensor.detach() : tensor;
  bool is_last = false;
  bool is_too_many = false;
  {
    const std::lock_guard lock(mutex_);
    const size_t number = recomputation.num_saved++;
    if (number < places_.size()) {
      if (places_[number].is_alive) recomputation.slots[number] = {SlotState::kFilled, kept};
    } else if (!is_forward_complete_) {
      ignores_number_ = true;  // a backward pass inside forward: the rest of forward has not saved anything yet
    } else {
      is_too_many = !options_.early_stop;
    }
    // Also holds past the end: the function may have caught the exception and continued.
    is_last = options_.early_stop && recomputation.num_saved >= places_.size();
  }
  if (is_last) throw StopRecomputation();
  if (is_too_many) {
    fail(recomputation,
         "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original forward "
         "pass.\n");
  }
  return [kept] { return kept; };
}

void CheckpointFrame::check_match(const Recomputation& recomputation) const {
  size_t num_saved_in_forward = 0;
  std::string differences;
  {
    const std::lock_guard lock(mutex_);
    if (ignores_number_) return;
    num_saved_in_forward = places_.size();
    const bool compares =
        options_.determinism_check == DeterminismCheck::kDefault && recomputation.num_saved == num_saved_in_forward;
    for (const auto& [number, slot] : recomputation.slots) {
      if (!compares || slot.state != SlotState::kFilled) continue;
      const Metadata found(slot.tensor);
      if (found == places_[number].metadata) continue;
      differences += "tensor at position " + std::to_string(number) +
                     ":\nsaved metadata: " + places_[number].metadata.text() +
                     "\nrecomputed metadata: " + found.text() + "\n";
    }
  }
  if (recomputation.num_saved != num_saved_in_forward) {
    fail(recomputation,
         "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
         "recomputation.\nNumber of tensors saved during forward: " +
             std::to_string(num_saved_in_forward) +
             "\nNumber of tensors saved during recomputation: " + std::to_string(recomputation.num_saved) + ".\n");
  }
  if (!differences.empty()) {
    fail(recomputation,
         "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the "
         "forward pass.\n" +
             differences + ".\n");
  }
}

void CheckpointFrame::forget(size_t place) {
  std::vector<at::Tensor> freed;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  places_[place].is_alive = false;
  for (const auto& [pass, recomputation] : recomputations_) {
    const auto found = recomputation->slots.find(place);
    if (found == recomputation->slots.end()) continue;
    freed.push_back(std::move(found->second.tensor));
    recomputation->slots.erase(found);
  }
}

void CheckpointFrame::end_pass(int64_t pass) {
  RecomputationPtr freed;  // destroyed after the lock is released
  {
    const std::lock_guard lock(mutex_);
    const auto found = recomputations_.find(pass);
    if (found == recomputations_.end()) return;
    freed = std::move(found->second);
    recomputations_.erase(found);
  }
  changed_.notify_all();
}

void CheckpointFrame::fail(const Recomputation& recomputation, const std::string& what) const {
  std::string text = what;
  if (options_.debug) {
    const std::lock_guard lock(mutex_);
    text += "\nOperations executed during the original forward:\n\n" + list_of(forward_operators_) +
            "\nOperations executed during recomputation:\n\n" + list_of(recomputation.operators);
  } else {
    text +=
        "\nTip: To see a more detailed error message, pass CheckpointOptions{.debug = true} to "
        "cohort::activation::checkpoint.\n";
  }
  throw CheckpointError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text);
}

}  // namespace cohort::activation
