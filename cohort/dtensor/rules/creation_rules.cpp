// New tensors like an existing one, fills, random numbers, and values that leave for the host.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <string>

#include "cohort/dtensor/dispatch/global_shapes.h"
#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/local_steps.h"
#include "cohort/dtensor/rules/rules.h"
#include "cohort/dtensor/wrapper/redistribution.h"
#include "cohort/mesh/shard.h"

namespace cohort::dtensor {
namespace {

std::vector<Shape> shape_of_first(Call& call, const Plan&) { return {{call.operand(0).sizes().vec()}}; }

// The result gets the tensor's placements, because values do not matter; a Partial only if the result is all 0.
void like_options(const Call& call, const Axis& axis, std::vector<Option>& options, bool may_be_partial) {
  const auto& now = call.placement(0, axis.index);
  options.push_back({{now}, {now.is_partial() && !may_be_partial ? Placement(Replicate()) : now}});
}

bool is_zero_of_sum(const Placement& placement) {
  return placement.is_partial() && (placement.reduce_op() == "sum" || placement.reduce_op() == "avg");
}

Rule like(bool has_zeros) {
  return {.options =
              [has_zeros](const Call& call, const Axis& axis, std::vector<Option>& options) {
                like_options(call, axis, options, has_zeros && is_zero_of_sum(call.placement(0, axis.index)));
              },
          .shapes =
              [](Call& call, const Plan&) {
                const auto format = call.argument(call.num_arguments() - 1).toOptional<at::MemoryFormat>();
                return std::vector<Shape>{shape_like(call.operand(0).tensor, format)};
              }};
}

// ---- x.new_zeros(sizes): like x if it has these sizes, otherwise replicated ----

void new_options(const Call& call, const Axis& axis, std::vector<Option>& options, bool has_zeros) {
  const auto& now = call.placement(0, axis.index);
  if (call.operand(0).sizes() == c10::IntArrayRef(call.argument(1).toIntVector())) {
    like_options(call, axis, options, has_zeros && is_zero_of_sum(now));
  } else {
    options.push_back({{now}, {Replicate()}});
  }
}

// `strides`: the argument's number; -1 for an operation without it.
Rule new_like(bool has_zeros, int64_t strides = -1) {
  return {.options = [has_zeros](const Call& call, const Axis& axis,
                                 std::vector<Option>& options) { new_options(call, axis, options, has_zeros); },
          .shapes =
              [strides](Call& call, const Plan&) {
                Shape shape{call.argument(1).toIntVector()};
                if (strides >= 0) shape.strides = call.argument(strides).toIntVector();
                return std::vector<Shape>{shape};
              },
          .run =
              [strides](Call& call, const Plan& plan) {
                const auto sizes = local_sizes(call.mesh(), plan.results[0], call.argument(1).toIntVector());
                call.local(1) = sizes;
                if (strides >= 0) {
                  call.local(strides) = mesh::compute_local_stride(call.argument(strides).toIntVector(), sizes);
                }
                call.run();
              }};
}

// ---- In place, whatever the placement ----

void stay_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  const auto& now = call.placement(0, axis.index);
  Option option{{now}, {now}};
  option.operands.resize(call.operands().size(), Replicate());
  options.push_back(std::move(option));
}

bool is_partial(const Placements& placements) {
  for (const auto& placement : placements) {
    if (placement.is_partial()) return true;
  }
  return false;
}

// For a Partial, the first rank has the value and the others neutral elements.
void run_fill(Call& call, const Plan& plan) {
  if (!is_partial(plan.operands[0])) return call.run();
  const auto part = call.local_tensor(0);
  call.local(0) = at::empty_like(part);
  call.run();
  Placements full = plan.operands[0];
  for (auto& placement : full) placement = placement.is_partial() ? Placement(Replicate()) : placement;
  part.copy_(redistributed(call.result(0).toTensor(), call.mesh(), full, plan.operands[0], call.operand(0).sizes()));
}

// ---- x.set_(source), with which torch::load fills parameters: each rank keeps its shard of a full source ----

void set_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  const auto& now = call.placement(0, axis.index);
  options.push_back({{now, now}, {now}});
}

void run_set(Call& call, const Plan&) {
  const auto &tensor = call.operand(0).tensor, &source = call.operand(1).tensor;
  TORCH_CHECK_VALUE(tensor.sizes() == source.sizes() && tensor.scalar_type() == source.scalar_type(),
                    "[cohort] DTensor: a tensor of shape ", tensor.sizes(), " and ", tensor.scalar_type(),
                    " cannot become one of shape ", source.sizes(), " and ", source.scalar_type(),
                    "\n  hint: use a file of the same model for torch::load, or load before distribute_module");
  call.local_tensor(0).copy_(call.local_tensor(1));
}

// ---- Random numbers: every rank draws all of them, in memory order, so that they do not depend on placements ----

at::Tensor own_shard_of(const Call& call, const Placements& placements, const at::Tensor& full) {
  return redistributed(full, call.mesh(), replicated(call.mesh()), placements, full.sizes());
}

at::Tensor full_result_like(const Call& call, const at::Tensor& part) {
  const auto& tensor = call.operand(0).tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), part.options());
}

void run_random_in_place(Call& call, const Plan& plan) {
  const auto part = call.local_tensor(0);
  call.local(0) = full_result_like(call, part);
  call.run();
  part.copy_(own_shard_of(call, plan.operands[0], call.result(0).toTensor()));
}

void run_random_like(Call& call, const Plan& plan) {
  call.local(0) = full_result_like(call, call.local_tensor(0));
  call.run();
  call.result(0) = own_shard_of(call, plan.results[0], call.result(0).toTensor());
}

void dropout_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  const auto& now = call.placement(0, axis.index);
  if (!now.is_partial()) options.push_back({{now}, {now, now}});
}

std::vector<Shape> dropout_shapes(Call& call, const Plan&) {
  return std::vector<Shape>(2, shape_like(call.operand(0).tensor));
}

// Draws the factors as dropout of ones.
void run_dropout(Call& call, const Plan& plan) {
  const auto part = call.local_tensor(0);
  call.local(0) = full_result_like(call, part).fill_(1);
  call.run();
  const auto factors = own_shard_of(call, plan.results[0], call.result(0).toTensor());
  call.finish({part * factors, own_shard_of(call, plan.results[1], call.result(1).toTensor())});
}

// ---- Values for the host ----

void equal_options(const Call& call, const Axis& axis, std::vector<Option>& options) {
  if (call.operands().size() != 2 || call.operand(0).sizes() != call.operand(1).sizes()) return;
  for (const size_t i : {0, 1}) {
    const auto& now = call.placement(i, axis.index);
    if (now.is_shard_like()) options.push_back({{now, now}, {Replicate()}});
  }
}

void run_equal(Call& call, const Plan& plan) {
  call.run();
  const auto all_dims = std::vector<bool>(call.operand(0).dim(), true);
  if (!crosses(plan, 0, all_dims)) return;
  const auto here = at::scalar_tensor(call.result(0).toBool() ? 1 : 0, at::kInt).to(call.operand(0).tensor.device());
  call.result(0) = reduced_over_shards(call, plan, 0, all_dims, "min", here).item<int>() == 1;
}

Rule without_tensor_results(std::function<void(const Call&, const Axis&, std::vector<Option>&)> options,
                            std::function<void(Call&, const Plan&)> run = {}) {
  return {.options = std::move(options), .shapes = shape_of_first, .run = std::move(run)};
}

}  // namespace

void add_creation_rules() {
  for (const char* name : {"zeros_like", "empty_like"}) add_rule(std::string("aten::") + name, like(true));
  for (const char* name : {"ones_like", "full_like"}) add_rule(std::string("aten::") + name, like(false));
  for (const char* name : {"new_zeros", "new_empty"}) add_rule(std::string("aten::") + name, new_like(true));
  for (const char* name : {"new_ones", "new_full"}) add_rule(std::string("aten::") + name, new_like(false));
  add_rule("aten::new_empty_strided", new_like(true, /*strides=*/2));
  for (const char* name : {"zero_", "fill_.Scalar", "fill_.Tensor"}) {
    add_rule(std::string("aten::") + name, {.options = stay_options, .shapes = shape_of_first, .run = run_fill});
  }
  for (const char* name : {"bernoulli_.float", "uniform_", "normal_", "exponential_", "random_", "random_.to",
                           "random_.from", "log_normal_", "cauchy_", "geometric_"}) {
    add_rule(std::string("aten::") + name,
             {.options = stay_options, .shapes = shape_of_first, .run = run_random_in_place});
  }
  for (const char* name : {"rand_like", "randn_like", "randint_like", "randint_like.low_dtype"}) {
    auto rule = like(false);
    rule.run = run_random_like;
    add_rule(std::string("aten::") + name, rule);
  }
  add_rule("aten::native_dropout", {.options = dropout_options, .shapes = dropout_shapes, .run = run_dropout});
  add_rule("aten::set_.source_Tensor", {.options = set_options, .shapes = shape_of_first, .run = run_set});
  add_rule("aten::_local_scalar_dense", without_tensor_results([](const Call&, const Axis&, std::vector<Option>&) {}));
  add_rule("aten::equal", without_tensor_results(equal_options, run_equal));
}

void add_all_rules() {
  add_pointwise_rules();
  add_view_rules();
  add_reduction_rules();
  add_matrix_rules();
  add_network_rules();
  add_embedding_rules();
  add_index_rules();
  add_class_rules();
  add_loss_rules();
  add_creation_rules();
  add_optimizer_rules();
  add_composed_functions();
}

}  // namespace cohort::dtensor
