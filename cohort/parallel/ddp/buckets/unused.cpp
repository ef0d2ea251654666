#include "cohort/parallel/ddp/buckets/unused.h"

#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace cohort::ddp {

using torch::autograd::Node;

UnusedSearch::UnusedSearch(const std::vector<at::Tensor>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    accumulators_.push_back(torch::autograd::impl::gradient_edge(parameters[i]));
    index_of_[accumulators_.back().function.get()] = i;
  }
}

std::vector<size_t> UnusedSearch::unused(const std::vector<at::Tensor>& outputs) const {
  std::vector<bool> used(accumulators_.size(), false);
  std::unordered_set<Node*> seen;
  std::vector<Node*> stack;
  const auto visit = [&](Node* node) {
    if (!node || !seen.insert(node).second) return;
    stack.push_back(node);
    if (const auto found = index_of_.find(node); found != index_of_.end()) used[found->second] = true;
  };
  for (const auto& output : outputs) {
    if (output.defined() && output.requires_grad()) visit(torch::autograd::impl::gradient_edge(output).function.get());
  }
  while (!stack.empty()) {
    auto* node = stack.back();
    stack.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  std::vector<size_t> result;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) result.push_back(i);
  }
  return result;
}

}  // namespace cohort::ddp
