/// Parallel styles: what parallelize_module (parallelize_module.h) makes of a module. Names and meaning follow
/// torch/distributed/tensor/parallel/style.py.
///
/// In C++ a module that is a typed member of another one, `torch::nn::Linear up`, has no place where tensors could be caught on
/// their way in or out. None is needed: parameters that are DTensors make activations DTensors, which find their layouts
/// themselves. So use_local_output is false here unless it is asked for, and layouts that differ from those that come by
/// themselves can be had only at children of a torch::nn::Sequential, or by with_layouts (with_layouts.h).
///
/// Layouts: how a tensor lies on the mesh, which has one axis. Of what goes in or out as a plain tensor `..._layouts` says which
/// part it is; it becomes a DTensor, and is brought into the wanted layout.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"

namespace torch::nn {
class Module;
}

namespace cohort {

/// Each rank computes some outputs of a linear map, or some columns of an embedding. A linear map is a torch::nn::Linear, and any
/// module whose only parameters are `weight` [out, in] and maybe `bias` [out]; an embedding a torch::nn::Embedding.
struct ColwiseParallel {
  std::optional<Placement> input_layouts = {};   ///< default: Replicate()
  std::optional<Placement> output_layouts = {};  ///< default: Shard(-1)
  bool use_local_output = false;
  /// The weight holds so many maps one below the other, such as query, key and value: each of them is shared out.
  int64_t num_parts = 1;
  /// The outputs, of each part, are those of so many attention heads, which cannot be cut: c10::ValueError, with the division,
  /// unless the ranks divide them. 0: no heads.
  int64_t num_heads = 0;
};

/// Each rank has some inputs of a linear map, whose outputs are sums over the ranks, or some rows of an embedding.
struct RowwiseParallel {
  std::optional<Placement> input_layouts = {};   ///< default: Shard(-1)
  std::optional<Placement> output_layouts = {};  ///< default: Replicate(), once its values are needed
  bool use_local_output = false;
};

/// Each rank has some positions of a norm or a dropout, whose parameters are whole on every rank.
struct SequenceParallel {
  int64_t sequence_dim = 1;
  bool use_local_output = false;
};

/// One for each tensor among the arguments or results; nothing: it stays as it is.
using Layouts = std::vector<std::optional<Placement>>;

struct PrepareModuleInput {
  Layouts input_layouts = {};
  Layouts desired_input_layouts = {};
  /// As in Python: whether the module gets plain tensors.
  bool use_local_output = false;
};

struct PrepareModuleOutput {
  Layouts output_layouts = {};
  Layouts desired_output_layouts = {};
  bool use_local_output = true;
};

struct PrepareModuleInputOutput {
  Layouts input_layouts = {};
  Layouts desired_input_layouts = {};
  bool use_local_input = false;
  Layouts output_layouts = {};
  Layouts desired_output_layouts = {};
  bool use_local_output = true;
};

/// Those that change no parameter.
using BorderStyle = std::variant<PrepareModuleInput, PrepareModuleOutput, PrepareModuleInputOutput>;
/// One of your own: called with the module, whose parameters it may distribute (dtensor/api/distribute_module.h).
using OwnStyle = std::function<void(torch::nn::Module& module, const DeviceMesh& mesh)>;
using ParallelStyle = std::variant<ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput,
                                   PrepareModuleOutput, PrepareModuleInputOutput, OwnStyle>;
/// Paths of modules, whose parts are patterns as of a shell ("h.*.attn.c_attn"; "": the module itself), in the order in which
/// they are applied.
using ParallelPlan = std::vector<std::pair<std::string, ParallelStyle>>;

}  // namespace cohort
