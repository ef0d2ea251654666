/// Parallel styles: how parallelize_module (parallelize_module.h) shards a module. Names and meaning follow
/// torch/distributed/tensor/parallel/style.py.
///
/// In C++ a module that is a typed member of another one, `torch::nn::Linear up`, has no place for hooks on its inputs and
/// outputs. It does not need them, since parameters that are DTensors make activations DTensors, which find their placements
/// themselves. So use_local_output is false here unless you ask for it, and other layouts are possible only for children of a
/// torch::nn::Sequential, or with with_layouts (with_layouts.h).
///
/// Layouts: the placement of a tensor on the mesh, which has one axis. For a plain tensor that goes in or out, `..._layouts` says
/// which shard it is; it becomes a DTensor and is redistributed to the desired layout.
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

/// Each rank computes some outputs of a linear map, or some columns of an embedding. A linear map is a torch::nn::Linear, or any
/// module whose only parameters are `weight` [out, in] and possibly `bias` [out]; an embedding is a torch::nn::Embedding.
struct ColwiseParallel {
  std::optional<Placement> input_layouts = {};   ///< if absent, Replicate()
  std::optional<Placement> output_layouts = {};  ///< if absent, Shard(-1)
  bool use_local_output = false;
  /// The weight holds this many maps one below the other, such as query, key and value: each of them is sharded.
  int64_t num_parts = 1;
  /// The outputs of each part belong to this many attention heads, which cannot be split: throws c10::ValueError, with the
  /// division, unless the number of ranks divides it.
  std::optional<int64_t> num_heads = {};
};

/// Each rank has some inputs of a linear map, whose outputs are sums over the ranks, or some rows of an embedding.
struct RowwiseParallel {
  std::optional<Placement> input_layouts = {};   ///< if absent, Shard(-1)
  std::optional<Placement> output_layouts = {};  ///< if absent, Replicate(), once its values are needed
  bool use_local_output = false;
};

/// Each rank has some positions of a norm or a dropout; its parameters are replicated.
struct SequenceParallel {
  int64_t sequence_dim = 1;
  bool use_local_output = false;
};

/// One for each tensor among the arguments or results; if absent, the tensor stays as it is.
using Layouts = std::vector<std::optional<Placement>>;

struct PrepareModuleInput {
  Layouts input_layouts = {};
  Layouts desired_input_layouts = {};
  /// Whether the module gets plain tensors, as in Python.
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

/// The styles that change no parameter.
using InputOutputStyle = std::variant<PrepareModuleInput, PrepareModuleOutput, PrepareModuleInputOutput>;
/// A style of your own: called with the module, whose parameters it may distribute (dtensor/api/distribute_module.h).
using OwnStyle = std::function<void(torch::nn::Module& module, const DeviceMesh& mesh)>;
using ParallelStyle = std::variant<ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput,
                                   PrepareModuleOutput, PrepareModuleInputOutput, OwnStyle>;
/// Paths of modules and their styles, in the order in which they are applied. The parts of a path are patterns as in a shell
/// ("h.*.attn.c_attn"; "" is the module itself).
using ParallelPlan = std::vector<std::pair<std::string, ParallelStyle>>;

}  // namespace cohort
