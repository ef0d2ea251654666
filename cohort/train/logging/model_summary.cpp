#include "cohort/train/logging/model_summary.h"

#include <c10/util/Exception.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cohort/base/numbers/count.h"
#include "cohort/base/text/text.h"
#include "cohort/report/terminal/figures.h"
#include "cohort/report/terminal/text_table.h"

namespace cohort::train {
namespace {

using torch::nn::Module;
using Seen = std::unordered_set<const c10::TensorImpl*>;

struct TensorCount {
  int64_t elements = 0, trainable = 0, bytes = 0, trainable_bytes = 0;
};

// Counts a tensor that several modules share in the first one.
TensorCount count_tensors(const std::vector<at::Tensor>& tensors, Seen& seen) {
  TensorCount count;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    count.elements += tensor.numel();
    count.bytes += bytes;
    count.trainable += tensor.requires_grad() ? tensor.numel() : 0;
    count.trainable_bytes += tensor.requires_grad() ? bytes : 0;
  }
  return count;
}

TensorCount count_parameters(const Module& module) {
  Seen seen;
  return count_tensors(module.parameters(), seen);
}

bool is_container(const Module& module) {
  return module.as<torch::nn::ModuleList>() != nullptr || module.as<torch::nn::Sequential>() != nullptr;
}

// Returns the size of the largest module that fully_shard is usually called on: children, and items of lists.
int64_t largest_unit(const Module& model) {
  int64_t largest = 0;
  for (const auto& child : model.children()) {
    largest = std::max(largest, is_container(*child) ? largest_unit(*child) : count_parameters(*child).bytes);
  }
  return largest;
}

std::string size_text(int64_t bytes) { return base::format_bytes(static_cast<unsigned long long>(bytes)); }

// Returns "Linear" for "torch::nn::LinearImpl".
std::string type_name(const Module& module) {
  std::string name = module.name();
  if (const size_t colon = name.rfind(':'); colon != std::string::npos) name.erase(0, colon + 1);
  if (name.ends_with("Impl")) name.erase(name.size() - 4);
  return name;
}

void add_rows(report::TextTable& table, const Module& module, const std::string& name, int64_t depth,
              int64_t max_depth) {
  const TensorCount count = count_parameters(module);
  const std::string trainable = count.trainable == count.elements ? "yes" : count.trainable == 0 ? "no" : "partly";
  table.add_row({std::string(static_cast<size_t>(2 * depth), ' ') + name, type_name(module),
                 report::grouped_text(count.elements), size_text(count.bytes), count.elements == 0 ? "" : trainable});
  if (depth == max_depth) return;
  for (const auto& child : module.named_children()) add_rows(table, *child.value(), child.key(), depth + 1, max_depth);
}

// Returns "none", "ddp", "data_parallel" or "fsdp".
std::string strategy_of(const ModelSummaryOptions& options) {
  const std::vector<std::string> strategies = {"none", "single", "auto", "ddp", "data_parallel", "fsdp"};
  TORCH_CHECK_VALUE(std::find(strategies.begin(), strategies.end(), options.strategy) != strategies.end(),
                    "[cohort] model_summary: there is no strategy \"", options.strategy, "\"",
                    base::did_you_mean(options.strategy, strategies), "; it is one of ", base::quoted_list(strategies));
  if (options.strategy == "single") return "none";
  if (options.strategy == "auto") return options.world_size > 1 ? "ddp" : "none";
  return options.strategy;
}

std::string ranks_text(const ModelSummaryOptions& options) {
  const std::string ranks = std::to_string(options.world_size) + (options.world_size == 1 ? " rank" : " ranks");
  const std::string strategy = strategy_of(options);
  return strategy == "none" ? ranks : strategy + ", " + ranks;
}

}  // namespace

MemoryEstimate estimate_memory(const Module& model, const ModelSummaryOptions& options) {
  const std::string strategy = strategy_of(options);
  TORCH_CHECK_VALUE(options.world_size > 0, "[cohort] model_summary: world_size is at least 1, but got ",
                    options.world_size);
  Seen seen;
  const TensorCount parameters = count_tensors(model.parameters(), seen);
  const bool is_divided = strategy == "fsdp";
  const int64_t parts = is_divided ? options.world_size : 1;
  MemoryEstimate estimate;
  estimate.parameters = base::divide_up(parameters.bytes, parts);
  estimate.gradients = base::divide_up(parameters.trainable_bytes, parts);
  estimate.optimizer = options.optimizer_states * estimate.gradients;
  estimate.buffers = count_tensors(model.buffers(), seen).bytes;
  if (is_divided && options.world_size > 1) estimate.strategy = largest_unit(model);
  if (strategy == "ddp" && options.world_size > 1) estimate.strategy = estimate.gradients;
  return estimate;
}

std::string model_summary(const Module& model, const ModelSummaryOptions& options) {
  const MemoryEstimate memory = estimate_memory(model, options);
  const TensorCount count = count_parameters(model);
  report::TextTable table;
  table.add_column("module", report::TextTable::Align::kLeft);
  table.add_column("type", report::TextTable::Align::kLeft);
  table.add_column("parameters");
  table.add_column("size");
  table.add_column("trainable");
  add_rows(table, model, "(model)", 0, options.max_depth);
  std::string text = table.text();
  text += report::grouped_text(count.elements) + " parameters (" + size_text(count.bytes) + "), " +
          report::grouped_text(count.trainable) + " of them trainable; buffers " + size_text(memory.buffers) + "\n";
  text += "a rank will hold about " + size_text(memory.total()) + " and activations (" + ranks_text(options) +
          "): parameters " + size_text(memory.parameters) + ", gradients " + size_text(memory.gradients) +
          ", optimizer " + size_text(memory.optimizer) + ", buffers " + size_text(memory.buffers);
  if (memory.strategy > 0) text += ", " + strategy_of(options) + " " + size_text(memory.strategy);
  return text + "\n";
}

}  // namespace cohort::train
