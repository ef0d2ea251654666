#include "cohort/comm/watch/unwrapped_training.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>

#include "cohort/base/log.h"

namespace cohort::comm {
namespace {

std::mutex mutex;
std::optional<at::CallbackHandle> handle;
std::atomic<bool> watching = false;
std::atomic<int> last_pass = -1;
int last_rank = 0;
int group_size = 0;

void stop_watching() {
  const std::lock_guard lock(mutex);
  watching = false;
  if (handle) at::removeCallback(*handle);
  handle.reset();
}

// A gradient reaches a leaf in pass after pass; passes are told apart by autograd's number for them.
std::unique_ptr<at::ObserverContext> on_backward_node(const at::RecordFunction& node) {
  if (!watching || std::strcmp(node.name(), "torch::autograd::AccumulateGrad") != 0) return nullptr;
  const int pass = torch::autograd::get_current_graph_task_id();
  const int earlier = last_pass.exchange(pass);
  if (earlier == -1 || earlier == pass) return nullptr;
  if (!watching.exchange(false)) return nullptr;
  base::log_warning(
      "rank " + std::to_string(last_rank) + " of " + std::to_string(group_size) +
      " has run two backward passes and exchanged no gradients: each rank trains its own copy of the model. "
      "Wrap the model in cohort::DistributedDataParallel, or all_reduce the gradients yourself. If your program adds "
      "up the gradients of several backward passes before it does so, all is well.");
  return nullptr;
}

}  // namespace

void watch_for_unwrapped_training(int rank, int world_size) {
  stop_watching();
  if (world_size < 2) return;
  const std::lock_guard lock(mutex);
  last_rank = rank;
  group_size = world_size;
  last_pass = -1;
  watching = true;
  handle =
      at::addGlobalCallback(at::RecordFunctionCallback(on_backward_node).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

void gradients_are_exchanged() {
  if (watching.load(std::memory_order_relaxed) && watching.exchange(false)) stop_watching();
}

}  // namespace cohort::comm
