#include "cohort/dtensor/rules/labels.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cohort/mesh/shard.h"

namespace cohort::dtensor {
namespace {

bool has(const std::string& text, char one) { return text.find(one) != std::string::npos; }

// Returns the placement of the dimension with the letter `label`, sharded like `cut`, which may be a StridedShard.
std::optional<Placement> sharded_like(const std::string& dims, char label, const Placement& cut) {
  const auto at = dims.find(label);
  if (at == std::string::npos) return std::nullopt;
  const auto dim = static_cast<int64_t>(at);
  if (cut.is_shard()) return Placement(Shard(dim));
  return Placement(StridedShard(dim, cut.split_factor()));
}

std::optional<Placement> placement_of(const ResultLabels& result, char label, const Placement& cut) {
  if (const auto shard = sharded_like(result.dims, label, cut)) return shard;
  if (has(result.summed, label)) return Placement(Partial(result.reduce_op));
  if (has(result.untouched, label)) return Placement(Replicate());
  return std::nullopt;
}

// Returns the size of the dimension with the letter `label`.
std::optional<int64_t> size_of(const Labels& labels, const Call& call, char label) {
  for (size_t i = 0; label != kUnsharded && i < labels.operands.size(); ++i) {
    const auto at = labels.operands[i].find(label);
    if (at != std::string::npos) return call.operand(i).sizes()[at];
  }
  return std::nullopt;
}

int64_t numel_of(const Labels& labels, const Call& call, const std::string& dims) {
  int64_t numel = 1;
  for (const char label : dims) numel *= size_of(labels, call, label).value_or(1);
  return numel;
}

void add_sharded(const Labels& labels, const Call& call, char label, const Placement& cut,
                 std::vector<Option>& options) {
  Option option;
  for (const auto& dims : labels.operands) {
    option.operands.push_back(sharded_like(dims, label, cut).value_or(Placement(Replicate())));
  }
  for (const auto& result : labels.results) {
    const auto placement = placement_of(result, label, cut);
    if (!placement) return;
    if (placement->is_partial()) option.num_summands += numel_of(labels, call, result.dims);
    option.results.push_back(*placement);
  }
  if (labels.added >= 0 && option.results.front().is_partial()) option.operands[labels.added] = option.results.front();
  options.push_back(std::move(option));
}

// Adds an option for an operand that is Partial now, if the results can be Partial, too.
void add_partial(const Labels& labels, size_t operand, const Placement& partial, std::vector<Option>& options) {
  const bool adds = partial.reduce_op() == "sum" || partial.reduce_op() == "avg";
  if (labels.linear == Linear::kNo || (!adds && labels.linear != Linear::kCopies)) return;
  Option option{Placements(labels.operands.size(), Replicate()), Placements(labels.results.size(), partial)};
  if (labels.linear == Linear::kEach) {
    const auto& in = labels.linear_in;
    if (std::find(in.begin(), in.end(), static_cast<int64_t>(operand)) == in.end()) return;
    option.operands[operand] = partial;
    if (labels.added >= 0) option.operands[labels.added] = partial;
  } else {
    std::fill(option.operands.begin(), option.operands.end(), partial);
  }
  options.push_back(std::move(option));
}

// Whether no rank's shard is empty; with several axes, whether the ranks divide the size.
bool leaves_none_empty(const Placement& cut, int64_t size, const Call& call, const Axis& axis) {
  int64_t num_ranks = 1;
  for (int64_t one = 0; one < call.mesh().ndim(); ++one) num_ranks *= call.mesh().size(one);
  if (num_ranks != axis.num_ranks) return size % (num_ranks * cut.split_factor()) == 0;
  return !mesh::shard_ranges(cut, size, num_ranks, num_ranks - 1).empty();
}

// Whether a sum should stay Partial. A sum of Partial and replicated tensors is replicated, unless it is written to a Partial.
bool are_all_partial(const Labels& labels, const Call& call, const Axis& axis, const Placement& partial) {
  if (labels.linear != Linear::kTogether) return true;
  for (size_t i = 0; i < labels.operands.size(); ++i) {
    if (call.operand(i).is_written) return call.placement(i, axis.index) == partial;
    if (!(call.placement(i, axis.index) == partial)) return false;
  }
  return true;
}

std::vector<at::Tensor> local_results(Call& call, size_t index) {
  const auto& result = call.result(index);
  if (result.isTensorList()) return result.toTensorVector();
  return {result.isTensor() ? result.toTensor() : at::Tensor()};  // undefined for a number
}

}  // namespace

Labels::Labels(const Call& call) : operands(call.operands().size()), results(call.num_results()) {}

void Labels::name(const Call& call, int64_t argument, std::string dims) {
  const auto operand = call.operand_of(argument);
  if (operand >= 0) operands[operand] = std::move(dims);
}

std::string letters(int64_t ndim) {
  std::string text;
  for (int64_t dim = 0; dim < ndim; ++dim) text += letter(dim);
  return text;
}

std::string letters(int64_t ndim, const std::vector<bool>& is_unsharded) {
  auto text = letters(ndim);
  for (int64_t dim = 0; dim < ndim; ++dim) {
    if (is_unsharded[dim]) text[dim] = kUnsharded;
  }
  return text;
}

std::string broadcast_letters(c10::IntArrayRef of, c10::IntArrayRef sizes) {
  TORCH_CHECK(of.size() <= sizes.size(), "[cohort] DTensor: a tensor of shape ", of,
              " is beside others whose shapes give a result of shape ", sizes, ", which has fewer dimensions");
  std::string text;
  const size_t missing = sizes.size() - of.size();
  for (size_t dim = 0; dim < of.size(); ++dim) {
    text += of[dim] == sizes[dim + missing] ? letter(static_cast<int64_t>(dim + missing)) : kUnsharded;
  }
  return text;
}

void add_options(const Labels& labels, const Call& call, const Axis& axis, std::vector<Option>& options) {
  std::vector<std::pair<char, Placement>> seen;
  for (size_t i = 0; i < labels.operands.size(); ++i) {
    const auto& now = call.placement(i, axis.index);
    if (now.is_partial()) {
      if (are_all_partial(labels, call, axis, now)) add_partial(labels, i, now, options);
      continue;
    }
    if (!now.is_shard_like() || now.dim() >= static_cast<int64_t>(labels.operands[i].size())) continue;
    const char label = labels.operands[i][now.dim()];
    if (label == kUnsharded) continue;
    if (has(labels.needed, label) && !leaves_none_empty(now, call.operand(i).sizes()[now.dim()], call, axis)) continue;
    const Placement cut = now.is_shard() ? Placement(Shard(0)) : Placement(StridedShard(0, now.split_factor()));
    const std::pair<char, Placement> one(label, cut);
    if (std::find(seen.begin(), seen.end(), one) != seen.end()) continue;
    seen.push_back(one);
    add_sharded(labels, call, label, cut, options);
  }
}

std::vector<Shape> shapes_by(const Labels& labels, Call& call) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < labels.results.size(); ++i) {
    for (const auto& local : local_results(call, i)) {
      auto& shape = shapes.emplace_back();
      if (!local.defined()) continue;
      const auto& dims = labels.results[i].dims;
      for (size_t dim = 0; dim < static_cast<size_t>(local.dim()); ++dim) {
        const char label = dim < dims.size() ? dims[dim] : kUnsharded;
        shape.sizes.push_back(size_of(labels, call, label).value_or(local.size(static_cast<int64_t>(dim))));
      }
    }
  }
  return shapes;
}

Rule labeled(LabelsOf labels, std::function<void(Call&, const Plan&)> run) {
  return {.options = [labels](const Call& call, const Axis& axis,
                              std::vector<Option>& options) { add_options(labels(call), call, axis, options); },
          .shapes = [labels](Call& call, const Plan&) { return shapes_by(labels(call), call); },
          .run = std::move(run)};
}

}  // namespace cohort::dtensor
