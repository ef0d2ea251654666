#include "cohort/parallel/data_parallel/parallel_backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

namespace cohort::nn::parallel {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;
using NodePointer = decltype(Edge::function);  // std::shared_ptr until LibTorch 2.12

// A replica's graph: from the edges where gradients come in to the edges where they leave it.
struct Graph {
  edge_list roots;
  edge_list ends;
};

bool contains(const edge_list& edges, const Edge& edge) {
  return std::find(edges.begin(), edges.end(), edge) != edges.end();
}

// Returns each edge once.
edge_list edges_of(const std::vector<at::Tensor>& tensors) {
  edge_list edges;
  for (const auto& tensor : tensors) {
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    const auto edge = torch::autograd::impl::gradient_edge(tensor);
    if (!contains(edges, edge)) edges.push_back(edge);
  }
  return edges;
}

// Hooks on inputs and parameters belong to both parts of the graph. Inputs of two histories may depend on each other.
bool can_be_split_at(const edge_list& ends) {
  std::unordered_set<const Node*> nodes;
  for (const auto& end : ends) {
    auto& node = *end.function;
    if (!node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() || !node.pre_hooks().empty())
      return false;
    nodes.insert(&node);
  }
  return nodes.size() <= 2;  // the node of all parameters, and one of inputs
}

// Whether every path ends at the graph's ends, so that no gradient is lost.
bool is_closed(const Graph& graph) {
  std::unordered_set<const Node*> ends;
  for (const auto& end : graph.ends) ends.insert(end.function.get());
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open;
  const auto visit = [&](const Edge& edge) {
    if (ends.contains(edge.function.get())) return contains(graph.ends, edge);
    if (edge.function && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
    return true;
  };
  const auto visit_all = [&](const edge_list& edges) { return std::all_of(edges.begin(), edges.end(), visit); };
  if (!visit_all(graph.roots)) return false;
  while (!open.empty()) {
    const auto* node = open.back();
    open.pop_back();
    if (node->next_edges().empty() || !visit_all(node->next_edges())) return false;
  }
  return true;
}

// A pass that makes a graph of its own (create_graph) leads later passes directly into the replicas' graphs, through tensors that
// these have saved for backward: from then on this node passes gradients on to them, and one thread runs all. It must not run
// while another pass runs through it.
class ParallelBackward final : public Node {
 public:
  ParallelBackward(std::vector<Graph> graphs, std::shared_ptr<ReplicaThreads> threads)
      : graphs_(std::move(graphs)), threads_(std::move(threads)) {
    edge_list ends;
    for (const auto& graph : graphs_) {
      roots_.insert(roots_.end(), graph.roots.begin(), graph.roots.end());
      ends.insert(ends.end(), graph.ends.begin(), graph.ends.end());
    }
    set_next_edges(edge_list(roots_));  // also before these in autograd's order
    set_next_edges(std::move(ends));
  }

  variable_list apply(variable_list&& gradients) override {
    if (hands_on_) return std::move(gradients);
    if (at::GradMode::is_enabled()) {
      torch::autograd::Engine::get_default_engine().queue_callback([this, alive = getptr()] { hand_on(); });
    }
    const bool keeps_graph = torch::autograd::get_current_graph_task_keep_graph();
    std::vector<variable_list> results(graphs_.size());
    threads_->run(Devices(graphs_.size(), at::kCPU),
                  [&](size_t k) { results[k] = backward_through(graphs_[k], part_of(gradients, k), keeps_graph); });
    variable_list all;
    for (auto& result : results) all.insert(all.end(), result.begin(), result.end());
    return all;
  }

 private:
  void hand_on() {
    if (!hands_on_.exchange(true)) next_edges() = roots_;
  }

  variable_list part_of(const variable_list& gradients, size_t k) const {
    size_t begin = 0;
    for (size_t i = 0; i < k; ++i) begin += graphs_[i].roots.size();
    const auto first = gradients.begin() + static_cast<int64_t>(begin);
    return {first, first + static_cast<int64_t>(graphs_[k].roots.size())};
  }

  // Runs a backward pass of its own in this thread's engine.
  static variable_list backward_through(const Graph& graph, const variable_list& gradients, bool keeps_graph) {
    edge_list roots;
    variable_list of_roots;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      roots.push_back(graph.roots[i]);
      of_roots.push_back(gradients[i]);
    }
    if (roots.empty()) return variable_list(graph.ends.size());
    const bool creates_graph = at::GradMode::is_enabled();
    return torch::autograd::Engine::get_default_engine().execute(roots, of_roots, keeps_graph, creates_graph,
                                                                 /*accumulate_grad=*/false, graph.ends);
  }

  const std::vector<Graph> graphs_;
  edge_list roots_;
  std::atomic<bool> hands_on_ = false;
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

// Returns the nodes that joined the replicas' tensors; empty if one has another type.
std::vector<Node*> joints_of(const std::vector<at::Tensor>& gathered, size_t num_replicas) {
  std::vector<Node*> joints;
  for (const auto& tensor : gathered) {
    if (!tensor.defined() || !tensor.grad_fn()) continue;
    auto* const node = tensor.grad_fn().get();
    if (node->num_outputs() != num_replicas) return {};
    joints.push_back(node);
  }
  return joints;
}

// Returns each root once, in the order of the joints.
edge_list roots_of(const std::vector<Node*>& joints, size_t replica, const edge_list& ends) {
  edge_list roots;
  for (auto* const joint : joints) {
    const auto& edge = joint->next_edge(replica);
    if (edge.is_valid() && !contains(roots, edge) && !contains(ends, edge)) roots.push_back(edge);
  }
  return roots;
}

// Whether the last graph shares roots with one before it.
bool shares_roots(const std::vector<Graph>& graphs) {
  return std::any_of(graphs.begin(), graphs.end() - 1, [&](const Graph& graph) {
    return std::any_of(graph.roots.begin(), graph.roots.end(),
                       [&](const Edge& root) { return contains(graphs.back().roots, root); });
  });
}

// Makes gradients for the roots go to `node`.
void lead_to(const NodePointer& node, const std::vector<Graph>& graphs, const std::vector<Node*>& joints) {
  for (size_t k = 0; k < graphs.size(); ++k) {
    for (const auto& root : graphs[k].roots) {
      const auto number = node->add_input_metadata(root.function->input_metadata(root.input_nr).zeros_like());
      for (auto* const joint : joints) {
        auto& edge = joint->next_edges()[k];
        if (edge == root) edge = {node, number};
      }
    }
  }
}

}  // namespace

void run_backward_in_parallel(const std::vector<at::Tensor>& gathered, const std::vector<TensorsOfReplica>& inputs,
                              std::shared_ptr<ReplicaThreads> threads) {
  const auto joints = joints_of(gathered, inputs.size());
  std::vector<Graph> graphs;
  size_t num_with_roots = 0;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const auto ends = edges_of(inputs[k]);
    graphs.push_back({roots_of(joints, k, ends), ends});
    if (!can_be_split_at(ends) || !is_closed(graphs.back()) || shares_roots(graphs)) return;
    num_with_roots += graphs.back().roots.empty() ? 0 : 1;
  }
  if (num_with_roots < 2) return;
  lead_to(make_node(graphs, std::move(threads)), graphs, joints);
}

}  // namespace cohort::nn::parallel
