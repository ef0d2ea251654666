#include "cohort/parallel/module/sharded_tensors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/comm/notes/tensor_notes.h"
#include "cohort/dtensor/api/dtensor.h"

namespace cohort::parallel {
namespace {

struct Note {
  std::optional<mesh::ShardSpec> part = {};
  std::vector<Group> groups = {};  ///< as fully_shard notes them
  at::Tensor shard = {};           ///< defined if the note is about a full tensor
};

// Leaked on purpose: modules may be destroyed while the process exits.
comm::TensorNotes<Note>& notes() {
  static auto* const all = new comm::TensorNotes<Note>;
  return *all;
}

// Destroys the earlier note after the lock is released: it may be the last owner of a group, or a tensor.
void set_sharding(const at::Tensor& tensor, std::vector<Group> groups, at::Tensor shard) {
  notes().change(tensor, [&](Note& note) {
    std::swap(note.groups, groups);
    std::swap(note.shard, shard);
  });
}

}  // namespace

void note_shard(const at::Tensor& tensor, mesh::ShardSpec spec) {
  std::optional<mesh::ShardSpec> part(std::move(spec));
  notes().change(tensor, [&](Note& note) { std::swap(note.part, part); });
}

void forget_ended_shards() { notes().forget_gone(); }

std::optional<mesh::ShardSpec> noted_shard_spec(const at::Tensor& tensor) {
  if (is_dtensor(tensor)) return DTensor(tensor).spec();
  const auto noted = notes().of(tensor).part;
  if (!noted) return std::nullopt;
  // The layer may have been moved, or converted, since then.
  const auto& mesh = noted->mesh();
  const auto type = c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true);
  return mesh::ShardSpec(
      type == mesh.device_type() ? mesh : DeviceMesh::from_group(mesh.group(), type, mesh.axis_names()),
      noted->placements(), noted->shape(), tensor.scalar_type());
}

void note_sharded(const at::Tensor& tensor, const Group& group, std::vector<Group> others) {
  others.insert(others.begin(), group);
  set_sharding(tensor, std::move(others), {});
}

void note_full(const at::Tensor& tensor, const at::Tensor& shard, const Group& group) {
  set_sharding(tensor, {group}, shard);
}

void forget_sharded(const at::Tensor& tensor) { set_sharding(tensor, {}, {}); }

bool is_of_fully_shard(const at::Tensor& tensor) { return !notes().of(tensor).groups.empty(); }

at::Tensor shard_of(const at::Tensor& tensor) { return notes().of(tensor).shard; }

Group sharding_group(const at::Tensor& tensor) {
  const auto note = notes().of(tensor);
  if (!note.groups.empty()) return note.groups.front();
  return note.part ? note.part->mesh().group() : Group();
}

std::vector<Group> sharding_groups(const at::Tensor& tensor) {
  std::vector<Group> groups;
  if (const auto spec = noted_shard_spec(tensor)) {
    const auto& mesh = spec->mesh();
    for (int64_t axis = 0; mesh.coordinate() && axis < mesh.ndim(); ++axis) {
      const bool is_cut = spec->placements()[axis].is_shard_like() && mesh.size(axis) > 1;
      if (is_cut) groups.push_back(mesh.group(axis));
    }
  }
  for (const auto& group : notes().of(tensor).groups) {
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

at::Tensor own_shard(const at::Tensor& tensor) {
  if (!is_dtensor(tensor)) return tensor;
  const DTensor parts(tensor.detach());
  auto placements = parts.placements();
  for (auto& placement : placements) placement = placement.is_partial() ? Placement(Replicate()) : placement;
  return parts.redistribute(placements).to_local();
}

void check_has_own_gradient(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(!shard_of(tensor).defined(), "[cohort] a parameter of shape ", tensor.sizes(),
                    " has been sharded by fully_shard: its gradient is in its shards. Pass parameters() of the "
                    "wrapper, not the inner module's parameters.");
}

}  // namespace cohort::parallel
