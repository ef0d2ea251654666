#include "cohort/parallel/ddp/engines/pending_passes.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace cohort::ddp {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// LibTorch's releases have different smart pointers.
template <class T>
std::weak_ptr<T> weak_of(const std::shared_ptr<T>& pointer) {
  return pointer;
}
template <class T>
c10::weak_intrusive_ptr<T> weak_of(const c10::intrusive_ptr<T>& pointer) {
  return c10::weak_intrusive_ptr<T>(pointer);
}
using WeakNode = decltype(weak_of(std::declval<torch::autograd::Edge>().function));

using Flag = std::shared_ptr<std::atomic<bool>>;

}  // namespace

struct PendingPasses::End {
  std::function<void()> call;
  std::atomic<bool> is_awaited{false};
};

struct PendingPasses::Pass {
  std::vector<WeakNode> ends;  // the nodes that made the outputs
  bool is_averaged = false;
  bool is_watched = false;
  Flag is_reached = std::make_shared<std::atomic<bool>>(false);

  bool is_over() const {
    return *is_reached || std::all_of(ends.begin(), ends.end(), [](const WeakNode& node) { return node.expired(); });
  }
};

namespace {

// Everything else that waits for the end was queued before, and so is called before.
template <class End>
void call_at_end(const std::shared_ptr<End>& end) {
  if (end->is_awaited.exchange(true)) return;
  auto& autograd = torch::autograd::Engine::get_default_engine();
  autograd.queue_callback([&autograd, weak = std::weak_ptr(end)] {
    autograd.queue_callback([weak] {
      const auto alive = weak.lock();
      if (!alive) return;
      alive->is_awaited = false;
      alive->call();
    });
  });
}

template <class End>
class ReachedHook final : public torch::autograd::FunctionPreHook {
 public:
  ReachedHook(Flag is_reached, std::weak_ptr<End> end) : is_reached_(std::move(is_reached)), end_(std::move(end)) {}
  variable_list operator()(const variable_list& gradients) override {
    if (const auto end = end_.lock()) {
      *is_reached_ = true;
      call_at_end(end);
    }
    return gradients;
  }

 private:
  const Flag is_reached_;
  const std::weak_ptr<End> end_;
};

}  // namespace

PendingPasses::PendingPasses(std::function<void()> at_end) : end_(std::make_shared<End>()) {
  end_->call = std::move(at_end);
}

PendingPasses::~PendingPasses() = default;

void PendingPasses::add(const std::vector<at::Tensor>& outputs, bool is_averaged, bool has_reduced) {
  end_->is_awaited = false;  // left by a backward pass that threw
  if (has_reduced && passes_.size() == 1 && passes_.front().is_averaged && !passes_.front().is_watched) passes_.clear();
  finish(/*has_reduced=*/true);
  Pass pass;
  pass.is_averaged = is_averaged;
  for (const auto& output : outputs) {
    if (output.defined() && output.grad_fn()) pass.ends.push_back(weak_of(output.grad_fn()));
  }
  if (pass.ends.empty()) return;
  passes_.push_back(std::move(pass));
  if (passes_.size() == 1) return;
  for (auto& each : passes_) watch(each);
}

void PendingPasses::watch(Pass& pass) {
  if (std::exchange(pass.is_watched, true)) return;
  for (const auto& end : pass.ends) {
    const auto node = end.lock();
    if (node) node->add_pre_hook(std::make_unique<ReachedHook<End>>(pass.is_reached, end_));
  }
}

void PendingPasses::note_gradient() {
  if (passes_.size() == 1 && !passes_.front().is_watched) passes_.clear();
}

bool PendingPasses::finish(bool has_reduced) {
  if (has_reduced) {
    passes_.erase(std::remove_if(passes_.begin(), passes_.end(), [](const Pass& pass) { return pass.is_over(); }),
                  passes_.end());
  } else {
    for (auto& pass : passes_) *pass.is_reached = false;
  }
  return std::any_of(passes_.begin(), passes_.end(), [](const Pass& pass) { return pass.is_averaged; });
}

void PendingPasses::clear() { passes_.clear(); }

}  // namespace cohort::ddp
