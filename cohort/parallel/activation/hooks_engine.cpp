#include "cohort/parallel/activation/hooks_engine.h"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <atomic>
#include <tuple>
#include <utility>

namespace cohort::activation {
namespace {

using torch::autograd::Engine;

// A tensor that autograd has saved.
class PackedTensor final : public torch::autograd::SavedVariableHooks {
 public:
  explicit PackedTensor(std::shared_ptr<const PackHook> pack) : pack_(std::move(pack)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    unpack_ = (*pack_)(tensor);
    pack_.reset();
  }

  at::Tensor call_unpack_hook() override {
    at::Tensor tensor = unpack_ ? unpack_() : at::Tensor();
    TORCH_CHECK_TYPE(tensor.defined(),
                     "Output of saved tensor unpack_hook expected to be a Tensor but got an undefined one");
    return tensor;
  }

 private:
  std::shared_ptr<const PackHook> pack_;
  UnpackHook unpack_;
};

// The parameter types of an overridden function: releases differ in how they own nodes.
template <class Method>
struct ParametersOf;
template <class Return, class... Parameters>
struct ParametersOf<Return (Engine::*)(Parameters...)> {
  template <size_t i>
  using at = std::tuple_element_t<i, std::tuple<Parameters...>>;
};
using RootNode = ParametersOf<decltype(&Engine::execute_with_graph_task)>::at<1>;
using FailedNode = ParametersOf<decltype(&Engine::thread_on_exception)>::at<1>;

class HooksEngine final : public Engine {
 public:
  // Never destroyed: threads may run backward while the process ends.
  static HooksEngine& instance() {
    static HooksEngine* const engine = new HooksEngine;
    return *engine;
  }
  static Engine& as_default() { return instance(); }

  void set_host(Engine& host) { host_.store(&host, std::memory_order_release); }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    return host().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, RootNode root,
      torch::autograd::InputBuffer&& buffer) override {
    return host().execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return host().make_anomaly_metadata();
  }
  void thread_on_exception(const std::shared_ptr<torch::autograd::GraphTask>& task, FailedNode node,
                           std::exception& error) override {
    host().thread_on_exception(task, node, error);
  }
  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& queue,
                   bool should_increment) override {
    host().thread_init(device, queue, should_increment);
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (auto pack = current_pack_hook()) return std::make_unique<PackedTensor>(std::move(pack));
    return host().get_default_saved_variable_hooks();
  }

 private:
  HooksEngine() = default;
  Engine& host() const { return *host_.load(std::memory_order_acquire); }

  std::atomic<Engine*> host_{nullptr};  // set before this engine becomes the default one
};

}  // namespace

void install_hooks_engine() {
  Engine& current = Engine::get_default_engine();
  HooksEngine& ours = HooksEngine::instance();
  if (&current == &ours) return;
  ours.set_host(current);
  torch::autograd::set_default_engine_stub(&HooksEngine::as_default);
}

}  // namespace cohort::activation
