#include "cohort/parallel/tensor/parallelize_module.h"

#include <c10/util/Exception.h>
#include <fnmatch.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/wrapper/wrapper.h"
#include "cohort/parallel/module/wrapper_base.h"
#include "cohort/parallel/tensor/division.h"
#include "cohort/parallel/tensor/input_output_hooks.h"

namespace cohort {
namespace {

// Takes the place of a child of a Sequential, with the same parameters under the same names.
class HookedChild : public parallel::WrapperBase<torch::nn::Module> {
 public:
  HookedChild(torch::nn::AnyModule child, parallel::InputOutputHooks hooks)
      : WrapperBase("WithLayouts", child.ptr()), child_(std::move(child)), hooks_(std::move(hooks)) {}

  at::Tensor forward(at::Tensor input) {
    const auto inside = hooks_.inputs({std::move(input)});
    return hooks_.outputs({child_.forward(inside.front())}).front();
  }
  // The child's default arguments keep their values.
  bool _forward_has_default_args() override { return false; }

 private:
  torch::nn::AnyModule child_;
  parallel::InputOutputHooks hooks_;
};

/// A module to which a style is applied.
struct StyledPlace {
  torch::nn::Module& module;
  std::string path;
  torch::nn::Module* parent;  // null for the module that parallelize_module was called with
  std::string name;           // among the parent's children

  std::string text() const { return path.empty() ? "the module " + module.name() : "\"" + path + "\""; }
};

enum class MapKind { kLinear, kEmbedding, kOther };

MapKind map_kind(const torch::nn::Module& module) {
  if (module.as<torch::nn::EmbeddingImpl>()) return MapKind::kEmbedding;
  const auto parameters = module.named_parameters(/*recurse=*/false);
  const auto *weight = parameters.find("weight"), *bias = parameters.find("bias");
  const bool is_map = weight && weight->dim() == 2 && (!bias || bias->dim() == 1) && module.children().empty();
  return is_map && parameters.size() == (bias ? 2 : 1) ? MapKind::kLinear : MapKind::kOther;
}

class StyleApplication {
 public:
  StyleApplication(const DeviceMesh& mesh, const ParallelizeOptions& options) : mesh_(mesh), options_(options) {}

  void apply(const StyledPlace& at, const ParallelStyle& style) const {
    std::visit([&](const auto& one) { this->apply(at, one); }, style);
  }

 private:
  void apply(const StyledPlace& at, const ColwiseParallel& style) const {
    const auto kind = checked_kind(at, "ColwiseParallel");
    if (kind == MapKind::kEmbedding) {
      place(at, "weight", Shard(1));
    } else {
      check_parts(at, style);
      const auto rows = style.num_parts == 1 ? Placement(Shard(0)) : Placement(StridedShard(0, style.num_parts));
      place(at, "weight", rows);
      place(at, "bias", rows);
    }
    add_hooks(at, style, Replicate(), Shard(-1));
  }

  void apply(const StyledPlace& at, const RowwiseParallel& style) const {
    const bool is_table = checked_kind(at, "RowwiseParallel") == MapKind::kEmbedding;
    place(at, "weight", is_table ? Shard(0) : Shard(1));
    place(at, "bias", Replicate());
    add_hooks(at, style, is_table ? Placement(Replicate()) : Placement(Shard(-1)), Replicate());
  }

  void apply(const StyledPlace& at, const SequenceParallel& style) const {
    for (const auto& parameter : at.module.named_parameters(/*recurse=*/false)) {
      place(at, parameter.key(), Replicate());
    }
    const Placement cut = Shard(style.sequence_dim);
    if (style.use_local_output || is_in_sequential(at)) {
      add_hooks(at, PrepareModuleInputOutput{{cut}, {cut}, false, {cut}, {cut}, style.use_local_output});
    }
  }

  void apply(const StyledPlace& at, const PrepareModuleInput& style) const { add_hooks(at, style); }
  void apply(const StyledPlace& at, const PrepareModuleOutput& style) const { add_hooks(at, style); }
  void apply(const StyledPlace& at, const PrepareModuleInputOutput& style) const { add_hooks(at, style); }
  void apply(const StyledPlace& at, const OwnStyle& style) const { style(at.module, mesh_); }

  static MapKind checked_kind(const StyledPlace& at, const char* style) {
    const auto kind = map_kind(at.module);
    TORCH_CHECK_NOT_IMPLEMENTED(kind != MapKind::kOther, style,
                                " currently only support nn.Linear and nn.Embedding! [cohort] ", at.text(), " is a ",
                                at.module.name(),
                                "\n  hint: use a module whose only parameters are weight [out, in] and bias [out], or "
                                "place each parameter with distribute_parameters");
    return kind;
  }

  void check_parts(const StyledPlace& at, const ColwiseParallel& style) const {
    const int64_t num_outputs = at.module.named_parameters(/*recurse=*/false)["weight"].size(0);
    TORCH_CHECK_VALUE(
        style.num_parts >= 1 && num_outputs % style.num_parts == 0, "[cohort] parallelize_module: ", at.text(), " has ",
        num_outputs, " outputs, which cannot be split into ", style.num_parts,
        " equal parts\n  hint: set num_parts to the number of maps in one weight, such as 3 for query, key and value");
    if (style.num_heads) parallel::divided(*style.num_heads, "attention heads of " + at.text(), mesh_.group(0));
  }

  // A weight that is shared with an earlier module has already been placed.
  void place(const StyledPlace& at, const std::string& name, const Placement& placement) const {
    const auto parameters = at.module.named_parameters(/*recurse=*/false);
    const auto* parameter = parameters.find(name);
    if (!parameter || !parameter->defined()) return;
    const Placements wanted{placement};
    if (!is_dtensor(*parameter)) {
      dtensor::distribute_parameter(*parameter, mesh_, wanted, options_.src_rank);
      return dtensor::hold(*parameter);
    }
    const auto spec = DTensor(*parameter).spec();
    TORCH_CHECK_VALUE(spec.placements() == wanted && spec.mesh() == mesh_, "[cohort] parallelize_module: ", name,
                      " of ", at.text(), " is already placed as ", to_string(spec.placements()), " on ", spec.mesh(),
                      ", and should become ", to_string(wanted), " on ", mesh_,
                      "\n  hint: give modules that share a weight styles that agree; if you call it on a full model "
                      "before its parts, set replicate_rest = false");
  }

  static bool is_in_sequential(const StyledPlace& at) {
    return at.parent && at.parent->as<torch::nn::SequentialImpl>();
  }

  // Layouts that arise by themselves need no hook. Other layouts do, and plain tensors whose layout must be given.
  template <class Style>
  void add_hooks(const StyledPlace& at, const Style& style, const Placement& input, const Placement& output) const {
    const auto in = style.input_layouts.value_or(input), out = style.output_layouts.value_or(output);
    const bool is_told = style.input_layouts || style.output_layouts || style.use_local_output;
    const bool is_needed = !(in == input) || !(out == output) || style.use_local_output;
    if (!(is_in_sequential(at) ? is_told : is_needed)) return;
    add_hooks(at, PrepareModuleInputOutput{{in}, {input}, false, {output}, {out}, style.use_local_output});
  }

  void add_hooks(const StyledPlace& at, const InputOutputStyle& style) const {
    TORCH_CHECK_NOT_IMPLEMENTED(
        is_in_sequential(at), "[cohort] parallelize_module: ", at.text(), " is ",
        at.parent ? "a member that " + at.parent->name() + " calls by its type" : "what parallelize_module was given",
        ", so it cannot have hooks that redistribute its inputs or outputs\n  hint: leave the layouts out if they "
        "follow from those of the inputs, give them to a child of a torch::nn::Sequential, or wrap the module: "
        "with_layouts(module, mesh, style)");
    auto& list = *at.parent->as<torch::nn::SequentialImpl>();
    for (auto& child : list) {
      if (child.ptr().get() != &at.module) continue;
      const auto hooked = std::make_shared<HookedChild>(std::move(child), parallel::InputOutputHooks(mesh_, style));
      child = torch::nn::AnyModule(hooked);
      at.parent->replace_module(at.name, hooked);
    }
  }

  const DeviceMesh& mesh_;
  const ParallelizeOptions& options_;
};

// The modules of a plan's entry.
class PatternWalk {
 public:
  PatternWalk(std::string pattern, std::function<void(const StyledPlace&)> found)
      : pattern_(std::move(pattern)), tokens_(base::split(pattern_, '.')), found_(std::move(found)) {
    if (pattern_.empty()) tokens_.clear();
  }

  void visit(torch::nn::Module& module) { visit({module, "", nullptr, ""}, 0); }
  /// Absent if a module was found.
  const std::optional<std::string>& dead_end() const { return dead_end_; }

 private:
  void visit(const StyledPlace& at, size_t depth) {
    if (depth == tokens_.size()) {
      any_ = true;
      dead_end_.reset();
      return found_(at);
    }
    bool is_matched = false;
    for (const auto& child : at.module.named_children()) {
      if (::fnmatch(tokens_[depth].c_str(), child.key().c_str(), FNM_NOESCAPE) != 0) continue;
      is_matched = true;
      const auto path = at.path.empty() ? child.key() : at.path + "." + child.key();
      visit({*child.value(), path, &at.module, child.key()}, depth + 1);
    }
    if (!is_matched && !any_ && !dead_end_) dead_end_ = describe(at, tokens_[depth]);
  }

  static std::string describe(const StyledPlace& at, const std::string& token) {
    std::vector<std::string> names;
    for (const auto& child : at.module.named_children()) names.push_back(child.key());
    auto text = at.text() + " has no child \"" + token + "\"" + base::did_you_mean(token, names);
    return text + "\n  hint: " +
           (names.empty() ? "it has no children" : "use one of its children: " + base::quoted_list(names));
  }

  std::string pattern_;
  std::vector<std::string> tokens_;
  std::function<void(const StyledPlace&)> found_;
  bool any_ = false;
  std::optional<std::string> dead_end_;
};

bool is_first_rank(const DeviceMesh& mesh) { return mesh.coordinate() && mesh.local_rank() == 0; }

}  // namespace

void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                        const ParallelizeOptions& options) {
  TORCH_CHECK_VALUE(mesh.ndim() == 1, "[cohort] parallelize_module: the mesh must have one axis, but it is ", mesh,
                    "\n  hint: pass the axis whose ranks compute together, such as mesh[\"tp\"]");
  const StyleApplication styles(mesh, options);
  for (const auto& [pattern, style] : plan) {
    PatternWalk walk(pattern, [&styles, &one = style](const StyledPlace& at) { styles.apply(at, one); });
    walk.visit(module);
    if (walk.dead_end() && is_first_rank(mesh)) {
      base::log_warning("parallelize_module: the plan's \"" + pattern +
                        "\" matches no module, and is skipped: " + *walk.dead_end());
    }
  }
  if (options.replicate_rest) distribute_module(module, mesh, {}, options.src_rank);
}

}  // namespace cohort
