// Norms, convolutions and pooling.
#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/labels.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {
namespace {

std::string unsharded_dims(int64_t ndim) { return std::string(ndim, kUnsharded); }

// ---- Layer norm: every row by itself ----

// The letters of argument `input`'s dimensions before the normalized ones; argument `shape` has the normalized ones.
std::string row_dims(const Call& call, int64_t input, int64_t shape) {
  const int64_t ndim = call.operand(call.operand_of(input)).dim();
  const auto num_rows = ndim - static_cast<int64_t>(call.argument(shape).toIntVector().size());
  return letters(num_rows) + unsharded_dims(ndim - num_rows);
}

Labels layer_norm_labels(const Call& call) {
  Labels labels(call);
  const auto dims = row_dims(call, 0, 1);
  labels.name(call, 0, dims);
  for (auto& result : labels.results) result.dims = dims;
  return labels;
}

// Arguments: (grad, input, shape, then `statistics`, one or two). Results: gradients of input, weight and perhaps bias.
Rule layer_norm_backward(std::initializer_list<int64_t> statistics) {
  const std::vector<int64_t> rows = statistics;
  return labeled([rows](const Call& call) {
    Labels labels(call);
    const auto dims = row_dims(call, 1, 2);
    for (const int64_t argument : {0, 1}) labels.name(call, argument, dims);
    for (const int64_t argument : rows) labels.name(call, argument, dims);
    labels.results[0].dims = dims;
    for (size_t i = 1; i < labels.results.size(); ++i) {
      labels.results[i].summed =
          letters(std::count_if(dims.begin(), dims.end(), [](char one) { return one != kUnsharded; }));
    }
    return labels;
  });
}

// ---- Group norm: every example by itself ----

// Sets the number of examples, which is an argument. The kernel needs local tensors without gaps if the global ones have none.
auto with_local_batch(int64_t input, int64_t number) {
  return [=](Call& call, const Plan&) {
    for (const auto& operand : call.operands()) {
      if (operand.tensor.is_contiguous()) {
        call.local(operand.argument) = call.local_tensor(operand.argument).contiguous();
      }
    }
    call.local(number) = call.local_tensor(input).size(0);
    call.run();
  };
}

Labels group_norm_labels(const Call& call) {
  Labels labels(call);
  labels.name(call, 0, "n");
  for (auto& result : labels.results) result.dims = "n";
  return labels;
}

Labels group_norm_backward_labels(const Call& call) {
  Labels labels(call);
  for (const int64_t argument : {0, 1, 2, 3}) labels.name(call, argument, "n");
  labels.results = {{.dims = "n"}, {.dims = "", .summed = "n"}, {.dims = "", .summed = "n"}};
  return labels;
}

// ---- Batch norm: every channel by itself; statistics are those of the full batch ----

Labels batch_norm_labels(const Call& call) {
  Labels labels(call);
  labels.name(call, 0, ".c");
  for (const int64_t argument : {1, 2, 3, 4}) labels.name(call, argument, "c");
  for (auto& result : labels.results) result.dims = "c";
  labels.results[0].dims = ".c";
  labels.needed = "c";
  return labels;
}

// The fourth result is the kernel's own.
Labels cudnn_batch_norm_labels(const Call& call) {
  auto labels = batch_norm_labels(call);
  labels.results[3] = {.dims = "", .untouched = "c"};
  return labels;
}

Labels batch_norm_backward_labels(const Call& call) {
  Labels labels(call);
  for (const int64_t argument : {0, 1}) labels.name(call, argument, ".c");
  for (const int64_t argument : {2, 3, 4, 5, 6}) labels.name(call, argument, "c");
  labels.results = {{.dims = ".c"}, {.dims = "c"}, {.dims = "c"}};
  labels.needed = "c";
  return labels;
}

Labels cudnn_batch_norm_backward_labels(const Call& call) {
  auto labels = batch_norm_backward_labels(call);
  labels.name(call, 7, "");
  return labels;
}

// ---- Convolutions ----

bool is_plain_convolution(const Call& call, int64_t transposed, int64_t groups) {
  return !call.argument(transposed).toBool() && call.argument(groups).toInt() == 1;
}

Labels convolution_labels(const Call& call) {
  Labels labels(call);
  const int64_t ndim = call.operand(0).dim();
  if (ndim != call.operand(1).dim()) return labels;  // without a batch
  const bool is_plain = is_plain_convolution(call, 6, 8);
  labels.name(call, 0, is_plain ? "nk" : "n");
  labels.results[0].dims = is_plain ? "no" : "n";
  if (!is_plain) return labels;
  labels.name(call, 1, "ok");
  labels.name(call, 2, "o");
  labels.results[0].summed = "k";
  labels.needed = "ko";
  labels.linear = Linear::kEach;
  labels.linear_in = {0, 1};
  labels.added = call.operand_of(2);
  return labels;
}

// The height and width of the result are the same for every shard.
Labels convolution_backward_labels(const Call& call) {
  Labels labels(call);
  if (call.operand(0).dim() != call.operand(2).dim()) return labels;
  const bool is_plain = is_plain_convolution(call, 7, 9);
  labels.name(call, 0, is_plain ? "no" : "n");
  labels.name(call, 1, is_plain ? "nk" : "n");
  if (is_plain) labels.name(call, 2, "ok");
  labels.results[0] = {.dims = is_plain ? "nk" : "n", .summed = "o"};
  labels.results[1] = {.dims = is_plain ? "ok" : "", .summed = "n"};
  labels.results[2] = {.dims = is_plain ? "o" : "", .summed = "n", .untouched = "k"};
  labels.needed = "ko";
  return labels;
}

void run_convolution_backward(Call& call, const Plan&) {
  if (!call.local(3).isNone() && is_plain_convolution(call, 7, 9)) {
    call.local(3) = std::vector<int64_t>{call.local_tensor(0).size(1)};
  }
  call.run();
}

// ---- Pooling: every example and every channel by itself ----

Rule pooling(std::initializer_list<int64_t> tensors) {
  const std::vector<int64_t> arguments = tensors;
  return labeled([arguments](const Call& call) {
    Labels labels(call);
    const auto sizes = call.operand(0).sizes();
    std::string dims = sizes.size() == 4 ? "nc" : "";
    for (const int64_t argument : arguments) labels.name(call, argument, dims);
    for (auto& result : labels.results) result.dims = dims;
    labels.needed = "c";
    return labels;
  });
}

}  // namespace

void add_network_rules() {
  add_rule("aten::native_layer_norm", labeled(layer_norm_labels));
  add_rule("aten::native_layer_norm_backward", layer_norm_backward({3, 4}));
  add_rule("aten::_fused_rms_norm", labeled(layer_norm_labels));
  add_rule("aten::_fused_rms_norm_backward", layer_norm_backward({3}));
  add_rule("aten::native_group_norm", labeled(group_norm_labels, with_local_batch(0, 3)));
  add_rule("aten::native_group_norm_backward", labeled(group_norm_backward_labels, with_local_batch(0, 5)));
  auto batch_norm = labeled(batch_norm_labels);
  batch_norm.written = {3, 4};
  add_rule("aten::native_batch_norm", batch_norm);
  batch_norm.options = labeled(cudnn_batch_norm_labels).options;
  batch_norm.shapes = labeled(cudnn_batch_norm_labels).shapes;
  add_rule("aten::cudnn_batch_norm", batch_norm);
  add_rule("aten::cudnn_batch_norm_backward", labeled(cudnn_batch_norm_backward_labels));
  add_rule("aten::native_batch_norm_backward", labeled(batch_norm_backward_labels));
  add_rule("aten::convolution", labeled(convolution_labels));
  add_rule("aten::convolution_backward", labeled(convolution_backward_labels, run_convolution_backward));
  add_rule("aten::max_pool2d_with_indices", pooling({0}));
  add_rule("aten::max_pool2d_with_indices_backward", pooling({0, 1, 7}));
  add_rule("aten::avg_pool2d", pooling({0}));
  add_rule("aten::avg_pool2d_backward", pooling({0, 1}));
  add_rule("aten::_adaptive_avg_pool2d", pooling({0}));
  add_rule("aten::_adaptive_avg_pool2d_backward", pooling({0, 1}));
}

}  // namespace cohort::dtensor
