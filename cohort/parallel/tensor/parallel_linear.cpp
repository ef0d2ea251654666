#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/init.h>

#include <cmath>
#include <ostream>

#include "cohort/comm/collectives/coalescing.h"
#include "cohort/mesh/gathered_product.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/tensor/division.h"
#include "cohort/parallel/tensor/gathered_linear.h"
#include "cohort/parallel/tensor/parallel_layers.h"
#include "cohort/parallel/tensor/regions.h"
#include "cohort/parallel/tensor/shards.h"

namespace cohort::parallel {
namespace {

using parallel::place_in;

struct FullLinear {
  at::Tensor weight, bias;
};

// Draws values as torch::nn::Linear does.
FullLinear first_values(int64_t in_features, int64_t out_features, bool has_bias) {
  const at::NoGradGuard no_grad;
  FullLinear full{at::empty({out_features, in_features}), {}};
  torch::nn::init::kaiming_uniform_(full.weight, std::sqrt(5));
  if (has_bias) {
    const double bound = 1 / std::sqrt(static_cast<double>(in_features));
    full.bias = torch::nn::init::uniform_(at::empty({out_features}), -bound, bound);
  }
  return full;
}

void check_features(const char* layer, const at::Tensor& input, int64_t expected, const std::string& why) {
  TORCH_CHECK_VALUE(input.dim() > 0 && input.size(-1) == expected, "[cohort] ", layer, ": an input of shape ",
                    input.sizes(), " was given, whose last dimension should be ", expected, why);
}

void check_features(int64_t in_features, int64_t out_features) {
  TORCH_CHECK_VALUE(in_features > 0 && out_features > 0,
                    "[cohort] a parallel layer needs at least 1 input and 1 output, but got ", in_features, " and ",
                    out_features);
}

// Decides absent options once, since ranks must agree.
int64_t pieces_of_gather(const ColumnParallelOptions& options) {
  const auto& wanted = options.gather_pieces;
  TORCH_CHECK_VALUE(!wanted || *wanted >= 1, "[cohort] ColumnParallelLinear: gather_pieces is ", wanted.value_or(0),
                    ", but must be at least 1\n  hint: set it to 1 to gather in one piece, or leave it out to let the "
                    "number of cores decide");
  if (wanted) return *wanted;
  const auto place = place_in(options.group);
  const bool gathers = options.sequence_parallel && options.copy_input && place.group;
  return gathers ? mesh::pieces_for_cores(place.group, c10::kCPU) : 1;
}

void check_bias(const at::Tensor& own, const at::Tensor& given) {
  TORCH_CHECK_VALUE(own.defined() == given.defined(), "[cohort] load_full: the layer has ", own.defined() ? "a" : "no",
                    " bias, but ", given.defined() ? "one" : "none", " was given");
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(int64_t in_features, int64_t out_features,
                                                   const ColumnParallelOptions& options)
    : in_features(in_features), out_features(out_features), options(options) {
  check_features(in_features, out_features);
  this->options.gather_pieces = pieces_of_gather(options);
  const auto full = first_values(in_features, out_features, options.bias);
  const auto place = place_in(options.group);
  weight = register_parameter("weight", parallel::scatter_parameter(full.weight, Shard(0), place));
  const auto own_bias = options.bias ? parallel::scatter_parameter(full.bias, Shard(0), place) : at::Tensor();
  bias = register_parameter("bias", own_bias, options.bias);
}

ColumnParallelLinearImpl::~ColumnParallelLinearImpl() {
  weight.reset();
  bias.reset();
  parameters_.clear();
  parallel::forget_ended_shards();
}

void ColumnParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "cohort::parallel::ColumnParallelLinear(in_features=" << in_features
         << ", out_features=" << weight.size(0) << " of " << out_features << ", bias=" << bias.defined()
         << ", gather_output=" << options.gather_output << ")";
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& input) {
  check_features("ColumnParallelLinear", input, in_features, "");
  const auto own = own_outputs(input);
  if (!options.gather_output) return own;
  return gather_from_region(own, -1, {.group = options.group, .size = out_features});
}

at::Tensor ColumnParallelLinearImpl::own_outputs(const at::Tensor& input) {
  const bool copies = options.copy_input;
  auto everywhere = input;
  if (copies && options.sequence_parallel) {
    const auto place = place_in(options.group);
    const bool in_pieces = *options.gather_pieces > 1 && place.group && input.numel() > 0 &&
                           !at::autocast::is_autocast_enabled(input.device().type());
    if (in_pieces) {
      return parallel::gathered_linear(input, options.sequence_dim, weight, bias, place, *options.gather_pieces);
    }
    everywhere =
        gather_from_region(input, options.sequence_dim, {.group = options.group, .gradient = RegionGradient::kSum});
  }
  if (copies && !options.sequence_parallel) everywhere = copy_to_region(input, options.group);
  return at::linear(everywhere, weight, bias);
}

void ColumnParallelLinearImpl::load_full(const at::Tensor& full_weight, const at::Tensor& full_bias) {
  check_bias(bias, full_bias);
  const auto place = place_in(options.group);
  parallel::load_shard(weight, full_weight, Shard(0), {out_features, in_features}, place, "weight");
  if (bias.defined()) parallel::load_shard(bias, full_bias, Shard(0), {out_features}, place, "bias");
}

at::Tensor ColumnParallelLinearImpl::full_weight() const {
  return parallel::gather_parameter(weight, Shard(0), {out_features, in_features}, place_in(options.group));
}

at::Tensor ColumnParallelLinearImpl::full_bias() const {
  TORCH_CHECK_VALUE(bias.defined(), "[cohort] ColumnParallelLinear: the layer has no bias");
  return parallel::gather_parameter(bias, Shard(0), {out_features}, place_in(options.group));
}

RowParallelLinearImpl::RowParallelLinearImpl(int64_t in_features, int64_t out_features,
                                             const RowParallelOptions& options)
    : in_features(in_features), out_features(out_features), options(options) {
  check_features(in_features, out_features);
  const auto full = first_values(in_features, out_features, options.bias);
  const auto place = place_in(options.group);
  weight = register_parameter("weight", parallel::scatter_parameter(full.weight, Shard(1), place));
  const auto every_bias = options.bias ? parallel::scatter_parameter(full.bias, Replicate(), place) : at::Tensor();
  bias = register_parameter("bias", every_bias, options.bias);
}

RowParallelLinearImpl::~RowParallelLinearImpl() {
  weight.reset();
  parameters_.clear();
  parallel::forget_ended_shards();
}

void RowParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "cohort::parallel::RowParallelLinear(in_features=" << weight.size(1) << " of "
         << in_features << ", out_features=" << out_features << ", bias=" << bias.defined()
         << ", input_is_parallel=" << options.input_is_parallel << ")";
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& input) {
  const auto place = place_in(options.group);
  if (options.input_is_parallel) {
    check_features("RowParallelLinear", input, weight.size(1),
                   ", this rank's shard of " + std::to_string(in_features) + ": " +
                       parallel::chunks_text(in_features, place.num_ranks) +
                       "\n  hint: set input_is_parallel = false to pass the full input");
  } else {
    check_features(
        "RowParallelLinear", input, in_features,
        ", as input_is_parallel is false\n  hint: set it to true after a ColumnParallelLinear without gather_output");
  }
  const auto own_input = options.input_is_parallel ? input : scatter_to_region(input, -1, options.group);
  const auto own = at::linear(own_input, weight);
  if (!options.sequence_parallel) {
    const auto sum = reduce_from_region(own, options.group);
    return bias.defined() ? sum + bias : sum;
  }
  divided(own.size(options.sequence_dim), "positions of the sequence", options.group);
  const auto sum = reduce_scatter_to_region(own, options.sequence_dim, options.group);
  return bias.defined() ? sum + copy_to_region(bias, options.group) : sum;
}

void RowParallelLinearImpl::load_full(const at::Tensor& full_weight, const at::Tensor& full_bias) {
  check_bias(bias, full_bias);
  const auto place = place_in(options.group);
  parallel::load_shard(weight, full_weight, Shard(1), {out_features, in_features}, place, "weight");
  if (bias.defined()) parallel::load_shard(bias, full_bias, Replicate(), {out_features}, place, "bias");
}

at::Tensor RowParallelLinearImpl::full_weight() const {
  return parallel::gather_parameter(weight, Shard(1), {out_features, in_features}, place_in(options.group));
}

void reduce_sequence_gradients(const std::vector<at::Tensor>& parameters, const Group& group) {
  const auto place = place_in(group);
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    const auto shard = parallel::shard_of(parameter);
    const auto& gradient = (shard.defined() ? shard : parameter).grad();
    if (gradient.defined()) gradients.push_back(gradient);
  }
  if (place.group && !gradients.empty()) all_reduce_coalesced(gradients, {.group = place.group});
}

}  // namespace cohort::parallel
