#include "cohort/parallel/data_parallel/parallel_backward.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace cohort::nn::parallel {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;
using NodePointer = decltype(Edge::function);  // std::shared_ptr until LibTorch 2.12

// A replica's graph: from the edges where gradients come in to those where they leave it.
struct Graph {
  edge_list roots;
  edge_list ends;
};

// Each once.
edge_list edges_of(const std::vector<at::Tensor>& tensors) {
  edge_list edges;
  for (const auto& tensor : tensors) {
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    const auto edge = torch::autograd::impl::gradient_edge(tensor);
    if (std::find(edges.begin(), edges.end(), edge) == edges.end()) edges.push_back(edge);
  }
  return edges;
}

// Whether every path ends at the graph's ends, so that no gradient is lost.
bool is_closed(const Graph& graph) {
  std::unordered_set<const Node*> seen;
  for (const auto& end : graph.ends) seen.insert(end.function.get());
  std::vector<const Node*> open;
  const auto visit = [&](const Edge& edge) {
    if (edge.function && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
  };
  for (const auto& root : graph.roots) visit(root);
  while (!open.empty()) {
    const auto* node = open.back();
    open.pop_back();
    if (node->next_edges().empty()) return false;
    for (const auto& edge : node->next_edges()) visit(edge);
  }
  return true;
}

// A pass that makes a graph of its own (create_graph) leads later ones straight into the replicas' graphs, through what these
// have saved for backward: from then on this node hands gradients on to them, and one thread runs all.
class ParallelBackward final : public Node {
 public:
  ParallelBackward(std::vector<Graph> graphs, std::shared_ptr<ReplicaThreads> threads)
      : graphs_(std::move(graphs)), threads_(std::move(threads)) {
    edge_list ends;
    for (const auto& graph : graphs_) {
      roots_.insert(roots_.end(), graph.roots.begin(), graph.roots.end());
      ends.insert(ends.end(), graph.ends.begin(), graph.ends.end());
    }
    set_next_edges(edge_list(roots_));  // before these in autograd's order, too
    set_next_edges(std::move(ends));
  }

  variable_list apply(variable_list&& gradients) override {
    if (hands_on_) return std::move(gradients);
    if (at::GradMode::is_enabled()) {
      torch::autograd::Engine::get_default_engine().queue_callback([this, alive = getptr()] { hand_on(); });
    }
    std::vector<Graph> graphs;
    {
      const std::lock_guard lock(mutex_);
      TORCH_CHECK(!graphs_.empty(),
                  "Trying to backward through the graph a second time, after the graph of DataParallel's replicas was "
                  "freed. Specify retain_graph=true if you need to backward through the graph a second time.");
      graphs = graphs_;
    }
    std::vector<variable_list> results(graphs.size());
    threads_->run(Devices(graphs.size(), at::kCPU),
                  [&](size_t k) { results[k] = backward_through(graphs[k], part_of(gradients, graphs, k)); });
    variable_list all;
    for (auto& result : results) all.insert(all.end(), result.begin(), result.end());
    return all;
  }

  void release_variables() override {
    std::vector<Graph> released;  // destroyed without the lock: what they hold is foreign
    const std::lock_guard lock(mutex_);
    released.swap(graphs_);
    if (!at::GradMode::is_enabled()) roots_.clear();
  }

 private:
  void hand_on() {
    if (std::exchange(hands_on_, true)) return;
    next_edges() = roots_;
  }

  static variable_list part_of(const variable_list& gradients, const std::vector<Graph>& graphs, size_t k) {
    size_t begin = 0;
    for (size_t i = 0; i < k; ++i) begin += graphs[i].roots.size();
    const auto first = gradients.begin() + static_cast<int64_t>(begin);
    return {first, first + static_cast<int64_t>(graphs[k].roots.size())};
  }

  // The engine of this thread runs it: a backward pass of its own.
  static variable_list backward_through(const Graph& graph, const variable_list& gradients) {
    edge_list roots;
    variable_list of_roots;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      roots.push_back(graph.roots[i]);
      of_roots.push_back(gradients[i]);
    }
    if (roots.empty()) return variable_list(graph.ends.size());
    const bool creates_graph = at::GradMode::is_enabled();
    return torch::autograd::Engine::get_default_engine().execute(roots, of_roots, /*keep_graph=*/true, creates_graph,
                                                                 /*accumulate_grad=*/false, graph.ends);
  }

  std::mutex mutex_;
  std::vector<Graph> graphs_;
  edge_list roots_;
  bool hands_on_ = false;
  std::shared_ptr<ReplicaThreads> threads_;
};

template <class... Arguments, class Pointer = NodePointer>
Pointer make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    return std::make_shared<ParallelBackward>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<ParallelBackward>(std::forward<Arguments>(arguments)...);
  }
}

// Gradients of these outputs go to `node` from now on.
void lead_to(const NodePointer& node, const std::vector<at::Tensor>& outputs) {
  edge_list seen;
  std::vector<uint32_t> numbers;
  for (const auto& output : outputs) {
    if (output.is_leaf()) continue;
    const auto edge = torch::autograd::impl::gradient_edge(output);
    if (edge.function == node) continue;  // the same tensor, twice among the outputs
    const auto found = std::find(seen.begin(), seen.end(), edge);
    const auto place = found - seen.begin();
    if (found == seen.end()) {
      seen.push_back(edge);
      numbers.push_back(node->add_input_metadata(output));
    }
    torch::autograd::impl::set_gradient_edge(output, {node, numbers[place]});
  }
}

}  // namespace

void run_backward_in_parallel(const std::vector<ReplicaPass>& passes, std::shared_ptr<ReplicaThreads> threads) {
  std::vector<Graph> graphs;
  size_t num_with_roots = 0;
  for (const auto& pass : passes) {
    auto roots = pass.outputs;
    std::erase_if(roots, [](const at::Tensor& output) { return !output.defined() || output.is_leaf(); });
    graphs.push_back({edges_of(roots), edges_of(pass.inputs)});
    if (!is_closed(graphs.back())) return;
    num_with_roots += graphs.back().roots.empty() ? 0 : 1;
  }
  if (num_with_roots < 2) return;
  const auto node = make_node(std::move(graphs), std::move(threads));
  for (const auto& pass : passes) lead_to(node, pass.outputs);
}

}  // namespace cohort::nn::parallel
