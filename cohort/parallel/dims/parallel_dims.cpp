#include "cohort/parallel/dims/parallel_dims.h"

#include <c10/util/Exception.h>

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/mesh_groups.h"

namespace cohort::parallel {
namespace {

struct Dim {
  const char* name;
  int64_t ParallelDims::*size;
};

// From the outermost axis, whose neighbors are farthest apart, to the innermost, which communicates most.
constexpr std::array<Dim, 5> kDims{{{"pp", &ParallelDims::pp},
                                    {"dp_replicate", &ParallelDims::dp_replicate},
                                    {"dp_shard", &ParallelDims::dp_shard},
                                    {"cp", &ParallelDims::cp},
                                    {"tp", &ParallelDims::tp}}};

struct Product {
  std::vector<std::string> factors;  // "tp(2)", without the one that is -1
  std::vector<std::string> open;     // names of the numbers that are -1
  int64_t value = 1;                 // the product, at most the largest int64_t
};

Product product_of(const ParallelDims& dims) {
  Product product;
  for (const auto& [name, size] : kDims) {
    if (dims.*size == -1) {
      product.open.emplace_back(name);
      continue;
    }
    TORCH_CHECK_VALUE(
        dims.*size >= 1, "[cohort] ParallelDims: ", name, " is ", dims.*size,
        "\n  hint: set each to a number of ranks, at least 1; one may be -1, which stands for the remaining ranks");
    product.factors.push_back(std::string(name) + "(" + std::to_string(dims.*size) + ")");
    if (__builtin_mul_overflow(product.value, dims.*size, &product.value)) {
      product.value = std::numeric_limits<int64_t>::max();
    }
  }
  return product;
}

// Returns those of `names` that are axes of the mesh.
DeviceMesh::AxisNames present(const DeviceMesh& mesh, const DeviceMesh::AxisNames& names) {
  DeviceMesh::AxisNames result;
  for (const auto& name : names) {
    for (const auto& axis : mesh.axis_names()) {
      if (axis == name) result.push_back(name);
    }
  }
  return result;
}

}  // namespace

ParallelDims ParallelDims::resolved(int64_t world_size) const {
  const auto product = product_of(*this);
  TORCH_CHECK_VALUE(
      product.open.size() <= 1, "[cohort] ParallelDims: ", base::join(product.open, " and "),
      " are -1, but only one may be\n  hint: set the others to a number of ranks; 1 switches an axis off");
  const auto formula = base::join(product.factors, " * ") + " = " + std::to_string(product.value);
  auto result = *this;
  if (product.open.empty()) {
    TORCH_CHECK_VALUE(product.value == world_size, "[cohort] ParallelDims: ", formula, ", but there are ", world_size,
                      " ranks\n  hint: start ", product.value,
                      " ranks, or set one of the numbers to -1, which stands for the remaining ranks");
    return result;
  }
  TORCH_CHECK_VALUE(world_size % product.value == 0, "[cohort] ParallelDims: ", product.open[0],
                    " is -1, which stands for the rest of ", world_size, " ranks, but ", formula, " does not divide ",
                    world_size, ": ", world_size, " mod ", product.value, " = ", world_size % product.value,
                    "\n  hint: start a multiple of ", product.value, " ranks, or change one of the numbers");
  for (const auto& [name, size] : kDims) {
    if (result.*size == -1) result.*size = world_size / product.value;
  }
  return result;
}

DeviceMesh ParallelDims::build_mesh(const std::string& device_type) const {
  mesh::set_up_world(device_type, 1);
  const auto dims = resolved(get_world_size());
  std::vector<int64_t> shape;
  DeviceMesh::AxisNames names;
  for (const auto& [name, size] : kDims) {
    if (dims.*size == 1) continue;
    shape.push_back(dims.*size);
    names.emplace_back(name);
  }
  if (names.empty()) {
    shape.push_back(1);
    names.emplace_back("dp_shard");
  }
  auto mesh = init_device_mesh(device_type, shape, names);
  const std::vector<std::pair<std::string, DeviceMesh::AxisNames>> flattened{
      {"dp", {"dp_replicate", "dp_shard"}},
      {"dp_shard_cp", {"dp_shard", "cp"}},
      {"dp_cp", {"dp_replicate", "dp_shard", "cp"}}};
  for (const auto& [name, axes] : flattened) {
    const auto own = present(mesh, axes);
    if (!own.empty()) mesh.slice(own).flatten(name);
  }
  return mesh;
}

std::optional<DeviceMesh> axis_of(const DeviceMesh& mesh, const std::string& name) {
  try {
    return mesh[name];
  } catch (const c10::IndexError&) {
    return std::nullopt;
  }
}

std::optional<DeviceMesh> data_parallel_mesh(const DeviceMesh& mesh) {
  const auto shards = axis_of(mesh, "dp_shard_cp");
  const auto copies = axis_of(mesh, "dp_replicate");
  if (!copies) return shards && shards->size() > 1 ? shards : std::nullopt;
  if (shards) return DeviceMesh::concatenate({*copies, *shards});
  return copies->unflatten(0, {copies->size(), 1}, {"dp_replicate", "dp_shard_cp"});
}

DataShard data_shard_of(const DeviceMesh& mesh) {
  const auto line = axis_of(mesh, "dp");
  return line ? DataShard{line->size(), line->local_rank()} : DataShard();
}

}  // namespace cohort::parallel
