#include "cohort/comm/watch/unwrapped_training.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "cohort/base/log/log.h"

namespace cohort::comm {
namespace {

struct Watch {
  WatchedTraining training;
  std::optional<at::CallbackHandle> handle;
};

std::mutex mutex;
std::atomic<bool> watching = false;
std::atomic<int> last_pass = -1;

// State that is changed under `mutex`.
Watch& watch() {
  static auto* const the_watch = new Watch;  // never destroyed: threads may still use it
  return *the_watch;
}

void stop_watching() {
  const std::lock_guard lock(mutex);
  watching = false;
  if (watch().handle) at::removeCallback(*watch().handle);
  watch().handle.reset();
}

// Code that adds a hook for the moment a gradient is ready uses the gradient: wrappers of other libraries do so.
bool has_hooks(torch::autograd::Node& leaf) {
  return !leaf.post_hooks().empty() || leaf.tensor_post_acc_grad_hooks() != nullptr;
}

void warn() {
  WatchedTraining training;
  {
    const std::lock_guard lock(mutex);
    training = watch().training;
  }
  if (training.job.expired()) return;
  base::log_warning("rank " + std::to_string(training.rank) + " of " + std::to_string(training.world_size) +
                    " has run two backward passes and exchanged no gradients: each rank trains its own copy of the "
                    "model. Wrap the model in " +
                    training.wrapper +
                    ", or all_reduce the gradients yourself. If your program adds up the gradients of several "
                    "backward passes before it does so, all is well." +
                    (training.advice.empty() ? "" : " " + training.advice));
}

// Called for each node. A leaf gets a gradient in each pass; autograd's number of the pass tells passes apart.
std::unique_ptr<at::ObserverContext> on_backward_node(const at::RecordFunction& record) {
  if (!watching || std::strcmp(record.name(), "torch::autograd::AccumulateGrad") != 0) return nullptr;
  const auto node = torch::autograd::get_current_node();
  if (node && has_hooks(*node)) {
    watching = false;
    return nullptr;
  }
  const int pass = torch::autograd::get_current_graph_task_id();
  const int earlier = last_pass.exchange(pass);
  if (earlier == -1 || earlier == pass) return nullptr;
  if (watching.exchange(false)) warn();
  return nullptr;
}

}  // namespace

void watch_for_unwrapped_training(WatchedTraining training) {
  stop_watching();
  if (training.world_size < 2 || training.rank != 0) return;
  const std::lock_guard lock(mutex);
  watch().training = std::move(training);
  last_pass = -1;
  watching = true;
  watch().handle =
      at::addGlobalCallback(at::RecordFunctionCallback(on_backward_node).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

void gradients_are_exchanged() {
  if (watching.load(std::memory_order_relaxed) && watching.exchange(false)) stop_watching();
}

}  // namespace cohort::comm
