#include "cohort/parallel/pipeline/split.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/comm/pickle/pickle.h"
#include "cohort/pipeline/balance.h"

namespace cohort::pipeline {
namespace {

double num_elements(const torch::nn::Module& layer) {
  double sum = 0;
  for (const at::Tensor& parameter : layer.parameters()) sum += static_cast<double>(parameter.numel());
  return sum;
}

void wait_for(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) tensor.sum().item();
}

// Runs forward and backward, and leaves parameters' gradients unchanged.
at::Tensor run_layer(torch::nn::AnyModule& layer, const at::Tensor& input) {
  const at::AutoGradMode with_gradients(true);
  TensorList leaves;
  at::Tensor leaf = input.detach();
  if (at::isFloatingType(leaf.scalar_type())) leaves.push_back(leaf.requires_grad_(true));
  for (const at::Tensor& parameter : layer.ptr()->parameters()) {
    if (parameter.requires_grad()) leaves.push_back(parameter);
  }
  at::Tensor output = layer.forward(leaf);
  if (output.requires_grad()) {
    const auto gradients = torch::autograd::grad({output}, leaves, {at::ones_like(output)}, /*retain_graph=*/false,
                                                 false, /*allow_unused=*/true);
    for (const at::Tensor& gradient : gradients) {
      if (gradient.defined()) wait_for(gradient);
    }
  }
  wait_for(output);
  return output.detach();
}

// Restores buffers, such as the statistics of batch norm.
class KeptBuffers {
 public:
  explicit KeptBuffers(const torch::nn::Module& module) : buffers_(module.buffers()) {
    for (const at::Tensor& buffer : buffers_) copies_.push_back(buffer.clone());
  }
  void put_back() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(copies_[i]);
  }

 private:
  TensorList buffers_, copies_;
};

std::vector<double> timed(const torch::nn::Sequential& net, const at::Tensor& microbatch, int num_repeats) {
  std::vector<double> costs;
  at::Tensor input = microbatch;
  for (torch::nn::AnyModule layer : *net) {
    at::Tensor output = run_layer(layer, input);  // the first run is slower
    double fastest = 0;
    for (int i = 0; i < num_repeats; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run_layer(layer, input);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      fastest = i == 0 ? seconds.count() : std::min(fastest, seconds.count());
    }
    costs.push_back(fastest);
    input = std::move(output);
  }
  return costs;
}

std::vector<double> measured_here(const torch::nn::Sequential& net, const at::Tensor& microbatch, int num_repeats) {
  KeptBuffers kept(*net);
  std::vector<double> costs;
  try {
    costs = timed(net, microbatch, num_repeats);
  } catch (...) {
    kept.put_back();
    throw;
  }
  kept.put_back();
  return costs;
}

}  // namespace

std::vector<std::vector<size_t>> split_indices(const std::vector<int>& counts, size_t num_layers) {
  comm::or_throw_value(pipeline::check_counts(counts, num_layers));
  std::vector<std::vector<size_t>> stages;
  size_t next = 0;
  for (const int count : counts) {
    auto& stage = stages.emplace_back();
    for (int i = 0; i < count; ++i) stage.push_back(next++);
  }
  return stages;
}

std::vector<torch::nn::Sequential> split_sequential(const torch::nn::Sequential& net, const std::vector<int>& counts) {
  const auto names = net->named_children().keys();
  std::vector<torch::nn::Sequential> parts;
  for (const auto& indices : split_indices(counts, net->size())) {
    torch::nn::Sequential part;
    for (const size_t index : indices) part->push_back(names[index], *(net->begin() + static_cast<long>(index)));
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<torch::nn::Sequential> split_sequential(const torch::nn::Sequential& net, int num_stages) {
  return split_sequential(net, balanced_counts(parameter_costs(net), num_stages));
}

std::vector<int> balanced_counts(const std::vector<double>& costs, int num_stages) {
  return comm::or_throw_value(pipeline::plan_counts(costs, num_stages));
}

std::vector<double> parameter_costs(const torch::nn::Sequential& net) {
  std::vector<double> costs;
  for (const auto& layer : net->children()) costs.push_back(num_elements(*layer));
  return costs;
}

std::vector<double> measured_costs(const torch::nn::Sequential& net, const at::Tensor& microbatch,
                                   const MeasureOptions& options) {
  TORCH_CHECK_VALUE(options.num_repeats > 0, "[cohort] measured_costs: num_repeats must be positive, got ",
                    options.num_repeats);
  if (!options.group && !is_initialized()) return measured_here(net, microbatch, options.num_repeats);
  const comm::RankExchange ranks(comm::resolve(options.group));
  std::vector<double> costs;
  std::exception_ptr failure;
  const auto measured = comm::attempt([&] {
    try {
      if (ranks.is_first()) costs = measured_here(net, microbatch, options.num_repeats);
    } catch (...) {
      failure = std::current_exception();
      throw;
    }
    return comm::pickle(c10::IValue(costs));
  });
  const auto told = ranks.from_first(measured);
  if (failure) std::rethrow_exception(failure);
  const auto numbers =
      comm::unpickle(comm::or_throw(told, "measured_costs: rank 0 of the group, which measures, failed"));
  if (ranks.is_first()) return costs;
  for (const c10::IValue& cost : numbers.toListRef()) costs.push_back(cost.toDouble());
  return costs;
}

}  // namespace cohort::pipeline
