#include "cohort/parallel/pipeline/split_backward.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace cohort::pipeline {

namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;
// LibTorch's releases have different smart pointers.
using NodePtr = decltype(Edge::function);
using NodeSet = std::unordered_set<Node*>;

}  // namespace

/// A node of the trunk at which a parameter joins it.
struct JoinedNode {
  NodePtr node;
  variable_list gradients;  ///< of its outputs, as the first part left them
};

namespace {

// Notes the gradients that reach a node, or replaces them by the noted ones.
class JointHook final : public torch::autograd::FunctionPreHook {
 public:
  enum class Mode { kNote, kReplace };
  JointHook(std::shared_ptr<JoinedNode> joint, Mode mode) : joint_(std::move(joint)), mode_(mode) {}
  variable_list operator()(const variable_list& gradients) override {
    if (mode_ == Mode::kReplace) return joint_->gradients;
    joint_->gradients = gradients;
    return gradients;
  }

 private:
  std::shared_ptr<JoinedNode> joint_;
  Mode mode_;
};

// Nodes have hooks while it lives.
class JointHooks {
 public:
  JointHooks() = default;
  JointHooks(const JointHooks&) = delete;
  JointHooks& operator=(const JointHooks&) = delete;
  ~JointHooks() {
    for (const auto& [node, hook] : hooks_) {
      auto& hooks = node->pre_hooks();
      hooks.erase(
          std::remove_if(hooks.begin(), hooks.end(), [hook = hook](const auto& each) { return each.get() == hook; }),
          hooks.end());
    }
  }
  void add(const std::shared_ptr<JoinedNode>& joint, JointHook::Mode mode) {
    auto hook = std::make_unique<JointHook>(joint, mode);
    hooks_.emplace_back(joint->node, hook.get());
    joint->node->add_pre_hook(std::move(hook));
  }

 private:
  std::vector<std::pair<NodePtr, torch::autograd::FunctionPreHook*>> hooks_;
};

Edge edge_of(const at::Tensor& tensor) { return torch::autograd::impl::gradient_edge(tensor); }

// Returns ones for a loss. An output that the next stage does not use has zeros, as if that stage were on another rank, which
// sends them.
at::Tensor root_gradient(const TensorList& outputs, const TensorList& output_grads, size_t i) {
  if (output_grads.empty()) return at::ones_like(outputs[i]);
  return output_grads[i].defined() ? output_grads[i] : at::zeros_like(outputs[i]);
}

// Outputs that require gradients, and their gradients.
struct Roots {
  edge_list edges;
  variable_list gradients;
};

Roots roots_of(const TensorList& outputs, const TensorList& output_grads) {
  Roots roots;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad()) continue;
    roots.edges.push_back(edge_of(outputs[i]));
    roots.gradients.push_back(root_gradient(outputs, output_grads, i));
  }
  return roots;
}

// The nodes from which a node's gradient comes, for all nodes below the roots.
class ReverseGraph {
 public:
  explicit ReverseGraph(const edge_list& roots) {
    std::deque<Node*> queue;
    NodeSet seen;
    for (const Edge& root : roots) {
      if (seen.insert(root.function.get()).second) queue.push_back(root.function.get());
    }
    roots_ = seen;
    while (!queue.empty()) {
      Node* const node = queue.front();
      queue.pop_front();
      for (const Edge& next : node->next_edges()) {
        if (!next.is_valid()) continue;
        above_[next.function.get()].push_back(node);
        if (seen.insert(next.function.get()).second) queue.push_back(next.function.get());
      }
    }
  }

  // Returns all nodes from `start` upwards.
  NodeSet closure(const edge_list& start) const {
    NodeSet found;
    std::deque<Node*> queue;
    for (const Edge& edge : start) {
      if (found.insert(edge.function.get()).second) queue.push_back(edge.function.get());
    }
    while (!queue.empty()) {
      for (Node* above : above(queue.front())) {
        if (found.insert(above).second) queue.push_back(above);
      }
      queue.pop_front();
    }
    return found;
  }

  // Returns the first nodes of `trunk` from `start` upwards; empty if a path also leads past the trunk to a root.
  NodeSet joints(Node* start, const NodeSet& trunk) const {
    NodeSet found, seen = {start};
    std::deque<Node*> queue = {start};
    while (!queue.empty()) {
      if (roots_.contains(queue.front())) return {};
      for (Node* above : above(queue.front())) {
        if (trunk.contains(above)) {
          found.insert(above);
        } else if (seen.insert(above).second) {
          queue.push_back(above);
        }
      }
      queue.pop_front();
    }
    return found;
  }

  bool has(Node* node) const { return above_.contains(node) || roots_.contains(node); }

 private:
  const std::vector<Node*>& above(Node* node) const {
    static const std::vector<Node*> kNone;
    const auto found = above_.find(node);
    return found == above_.end() ? kNone : found->second;
  }
  std::unordered_map<Node*, std::vector<Node*>> above_;
  NodeSet roots_;
};

// Parameters that share a joint, directly or through others, make one group: the nodes between them are computed once.
class GroupBuilder {
 public:
  void add(const Edge& parameter, const NodeSet& joints) {
    WeightPart::Group group;
    group.parameters.push_back(parameter);
    for (Node* node : joints) {
      const auto [place, is_new] = known_.try_emplace(node);
      if (is_new) place->second = std::make_shared<JoinedNode>(JoinedNode{node->getptr(), {}});
      group.joints.push_back(place->second);
    }
    absorb(&group);
    groups_.push_back(std::move(group));
  }
  std::vector<WeightPart::Group> take() { return std::move(groups_); }

 private:
  static bool shares(const WeightPart::Group& a, const WeightPart::Group& b) {
    return std::any_of(a.joints.begin(), a.joints.end(), [&](const auto& joint) {
      return std::find(b.joints.begin(), b.joints.end(), joint) != b.joints.end();
    });
  }

  // Merges groups that share a joint with it.
  void absorb(WeightPart::Group* group) {
    std::vector<WeightPart::Group> left;
    for (WeightPart::Group& each : groups_) {
      if (!shares(each, *group)) {
        left.push_back(std::move(each));
        continue;
      }
      group->parameters.insert(group->parameters.begin(), each.parameters.begin(), each.parameters.end());
      for (const auto& joint : each.joints) {
        const bool is_new = std::find(group->joints.begin(), group->joints.end(), joint) == group->joints.end();
        if (is_new) group->joints.push_back(joint);
      }
    }
    groups_ = std::move(left);
  }

  std::unordered_map<Node*, std::shared_ptr<JoinedNode>> known_;
  std::vector<WeightPart::Group> groups_;
};

variable_list run(const Roots& roots, bool keep_graph, const edge_list& wanted) {
  return torch::autograd::Engine::get_default_engine().execute(roots.edges, roots.gradients, keep_graph,
                                                               /*create_graph=*/false, /*accumulate_grad=*/false,
                                                               wanted);
}

void accumulate(const Edge& parameter, const at::Tensor& gradient) {
  if (!gradient.defined()) return;
  auto* const accumulator = dynamic_cast<torch::autograd::AccumulateGrad*>(parameter.function.get());
  at::Tensor& sum = accumulator->variable.mutable_grad();
  const at::NoGradGuard no_grad;
  if (sum.defined()) {
    sum.add_(gradient);
  } else {
    // A copy, since one tensor may be the gradient of several parameters.
    sum = gradient.clone(at::MemoryFormat::Contiguous);
  }
}

}  // namespace

TensorList full_backward(const TensorList& outputs, const TensorList& output_grads, const TensorList& inputs) {
  TensorList used, grads;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad()) continue;
    used.push_back(outputs[i]);
    grads.push_back(root_gradient(outputs, output_grads, i));
  }
  if (!used.empty()) torch::autograd::backward(used, grads);
  TensorList result;
  for (const at::Tensor& input : inputs) {
    const bool has_grad = input.is_leaf() && input.requires_grad();
    result.push_back(has_grad ? std::exchange(input.mutable_grad(), at::Tensor()) : at::Tensor());
  }
  return result;
}

TensorList backward_input(const TensorList& outputs, const TensorList& output_grads, const TensorList& inputs,
                          const TensorList& parameters, WeightPart* part) {
  const Roots roots = roots_of(outputs, output_grads);
  TensorList result(inputs.size());
  if (roots.edges.empty()) return result;
  edge_list wanted;  // the edges of inputs first
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) wanted.push_back(edge_of(input));
  }
  const ReverseGraph graph(roots.edges);
  const NodeSet trunk = graph.closure(wanted);
  const size_t num_inputs = wanted.size();
  GroupBuilder groups;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.requires_grad()) continue;
    const Edge edge = edge_of(parameter);
    if (!graph.has(edge.function.get())) continue;
    const NodeSet joints = graph.joints(edge.function.get(), trunk);
    if (joints.empty()) {
      wanted.push_back(edge);
    } else {
      groups.add(edge, joints);
    }
  }
  part->groups = groups.take();
  variable_list gradients;
  {
    JointHooks hooks;
    for (const auto& group : part->groups) {
      for (const auto& joint : group.joints) hooks.add(joint, JointHook::Mode::kNote);
    }
    if (!wanted.empty()) gradients = run(roots, /*keep_graph=*/true, wanted);
  }
  for (size_t i = num_inputs; i < wanted.size(); ++i) accumulate(wanted[i], gradients[i]);
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad()) result[i] = gradients[next++];
  }
  for (const at::Tensor& output : outputs) {
    if (!output.is_view()) output.detach_();
  }
  return result;
}

void backward_weight(WeightPart part) {
  for (const auto& group : part.groups) {
    Roots roots;
    for (const auto& joint : group.joints) {
      for (size_t i = 0; i < joint->gradients.size(); ++i) {
        if (!joint->gradients[i].defined()) continue;
        roots.edges.emplace_back(joint->node, static_cast<uint32_t>(i));
        roots.gradients.push_back(joint->gradients[i]);
      }
    }
    if (roots.edges.empty()) continue;
    JointHooks hooks;
    // One joint may lie below another: the gradient from there is already part of its own.
    if (group.joints.size() > 1) {
      for (const auto& joint : group.joints) hooks.add(joint, JointHook::Mode::kReplace);
    }
    const auto gradients = run(roots, /*keep_graph=*/false, group.parameters);
    for (size_t i = 0; i < gradients.size(); ++i) accumulate(group.parameters[i], gradients[i]);
  }
}

}  // namespace cohort::pipeline
