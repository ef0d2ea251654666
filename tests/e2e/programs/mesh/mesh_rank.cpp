// What mesh_python_rank.py prints in Python: meshes, what is cut from them, tensors in parts, and texts of errors.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/mesh/device_mesh.h"

namespace {

using cohort::DeviceMesh;
using cohort::init_device_mesh;
using cohort::Partial;
using cohort::Placements;
using cohort::Replicate;
using cohort::Shard;
using cohort::StridedShard;
using Numbers = std::vector<int64_t>;

template <class Range>
std::string list(const Range& range) {
  std::ostringstream out;
  for (const auto& one : range) out << (out.tellp() > 0 ? " " : "") << one;
  return out.str();
}

std::string values(const at::Tensor& tensor) {
  const auto flat = tensor.to(at::kLong).contiguous();
  return list(tensor.sizes()) + ": " +
         list(c10::IntArrayRef(flat.const_data_ptr<int64_t>(), static_cast<size_t>(flat.numel())));
}

void show(const std::string& name, const DeviceMesh& mesh) {
  std::cout << name << " " << mesh << " " << values(mesh.mesh()) << " size " << mesh.size() << " rank " << mesh.rank();
  std::cout << " at " << (mesh.coordinate() ? list(*mesh.coordinate()) : "None");
  for (const auto& group : mesh.groups()) {
    std::cout << " group " << group->getGroupName() << " " << group->getGroupDesc() << " "
              << list(cohort::get_process_group_ranks(group)) << " " << group->getRank();
  }
  std::cout << "\n";
}

void show_error(const std::string& name, const std::function<void()>& fn) {
  try {
    fn();
    std::cout << name << " (no error)\n";
  } catch (const c10::Error& error) {
    std::cout << name << " " << error.what_without_backtrace() << "\n";
  }
}

void show_tensors(const DeviceMesh& mesh) {
  const Placements choices{Replicate(), Shard(0), Shard(-1), StridedShard(0, 2), Partial("avg")};
  for (const auto& first : choices) {
    for (const auto& second : choices) {
      // Python does not send shards of a _StridedShard whose sizes differ.
      const bool is_sent = !first.is_strided_shard() && !second.is_strided_shard();
      const auto tensor = at::arange(35, at::kDouble).view({7, 5}) + (is_sent ? 100 * mesh.rank() : 0);
      const auto src_rank = is_sent ? std::optional(0) : std::nullopt;
      const auto sharded = cohort::distribute_tensor(tensor, mesh, {first, second}, src_rank);
      // Nor does it put all of this one together again.
      const bool is_whole = !(first.is_strided_shard() && second.is_shard_like() && second.dim() == 0);
      const auto full = is_whole ? values(sharded.full_tensor()) : "";
      std::cout << "tensor " << cohort::to_string(sharded.placements()) << " " << values(sharded.to_local()) << " full "
                << full << " shards " << sharded.spec().num_shards() << "\n";
    }
  }
}

void show_errors(const DeviceMesh& mesh, const DeviceMesh& plain, const DeviceMesh& scattered) {
  const auto ones = at::ones({3});
  show_error("too big", [] { init_device_mesh("cpu", {3, 3}); });
  show_error("repeated", [] { init_device_mesh("cpu", {2, 4}, {"a", "a"}); });
  show_error("length", [] { init_device_mesh("cpu", {2, 4}, {"a"}); });
  show_error("device", [] { init_device_mesh("cpu:0", {8}); });
  show_error("redundant", [] { init_device_mesh("cpu", {2, 4}, {"a", "b"}, {{{0, "gloo"}, {"a", "gloo"}}}); });
  show_error("invalid key", [] { init_device_mesh("cpu", {2, 4}, {"a", "b"}, {{{5, "gloo"}, {"c", "gloo"}}}); });
  show_error("slice plain", [&] { plain["a"]; });
  show_error("flatten plain", [&] { plain.flatten(); });
  show_error("name of plain", [&] { plain.group("a"); });
  show_error("slice", [&] { mesh["pp"]; });
  show_error("slice two", [&] { mesh.slice({"dp", "pp"}); });
  show_error("order", [&] { mesh.slice({"tp", "dp"}); });
  show_error("overlap", [&] { mesh.slice({"dp", "dp_cp"}); });
  show_error("slice of slice", [&] { mesh["dp"]["dp_cp"]; });
  show_error("group", [&] { mesh.group(); });
  show_error("group name", [&] { mesh.group("pp"); });
  show_error("group index", [&] { mesh.group(3); });
  show_error("size index", [&] { mesh.size(3); });
  show_error("local rank", [&] { mesh.local_rank(); });
  show_error("flatten as axis", [&] { mesh.slice({"cp", "tp"}).flatten("dp"); });
  show_error("flatten again", [&] { mesh.slice({"cp", "tp"}).flatten("dp_cp"); });
  show_error("unflatten index", [&] { mesh.unflatten(3, {2}, {"a"}); });
  show_error("unflatten name", [&] { mesh.unflatten("pp", {2}, {"a"}); });
  show_error("unflatten length", [&] { mesh.unflatten(0, {2, 1}, {"a"}); });
  show_error("unflatten sizes", [&] { mesh.unflatten(0, {2, 3}, {"a", "b"}); });
  show_error("concatenate others", [&] { DeviceMesh::concatenate({mesh["dp"], scattered}); });
  show_error("concatenate overlap", [&] { DeviceMesh::concatenate({mesh["dp"], mesh.slice({"dp", "cp"})}); });
  show_error("from group mesh", [&] { DeviceMesh::from_group(mesh.group("dp"), "cpu", {}, at::tensor({0, 99})); });
  const std::vector<cohort::Group> pair{mesh.group("dp"), mesh.group("cp")};
  show_error("from no groups", [] { DeviceMesh::from_group(std::vector<cohort::Group>(), "cpu", {}, std::nullopt); });
  show_error("from groups", [&] { DeviceMesh::from_group(pair, "cpu", {}, std::nullopt); });
  show_error("from groups names", [&] { DeviceMesh::from_group(pair, "cpu", {}, at::arange(4)); });
  show_error("from groups dims", [&] { DeviceMesh::from_group(pair, "cpu", {"a", "b"}, at::arange(4)); });
  show_error("placements", [&] { cohort::distribute_tensor(ones, plain, {Shard(0)}); });
  const auto rows = cohort::distribute_tensor(at::ones({8, 3}), plain, {Shard(0), Replicate()});
  show_error("DTensor as it lies", [&] {
    const auto again = cohort::distribute_tensor(rows, plain, {Shard(0), Replicate()});
    std::cout << (again.is_same(rows) ? "the same " : "another ");
  });
  show_error("DTensor of other placements", [&] { cohort::distribute_tensor(rows, plain, {Replicate(), Shard(1)}); });
  show_error("DTensor of another mesh", [&] { cohort::distribute_tensor(rows, mesh["dp"], {Shard(0)}); });
  const auto leaf = at::ones({8}).requires_grad_();
  show_error("no leaf", [&] { cohort::distribute_tensor(leaf * 2, plain, {Shard(0), Replicate()}); });
  show_error("requires grad", [&] {
    const auto tensor = cohort::distribute_tensor(leaf, plain);
    std::cout << tensor.requires_grad() << tensor.is_leaf() << cohort::to_string(tensor.placements()) << " ";
  });
  show_error("product", [&] { cohort::distribute_tensor(ones, plain, {Partial("product"), Replicate()}); });
}

}  // namespace

int main() {
  cohort::init_process_group("gloo");
  const auto mesh = init_device_mesh("cpu", {2, 2, 2}, {"dp", "cp", "tp"});
  show("mesh", mesh);
  for (const auto* name : {"dp", "cp", "tp"}) show(name, mesh[name]);
  show("dp cp", mesh.slice({"dp", "cp"}));
  show("dp tp", mesh.slice({"dp", "tp"}));
  show("dp_cp", mesh.slice({"dp", "cp"}).flatten());
  show("dp_tp", mesh.slice({"dp", "tp"}).flatten("far"));
  show("flattened slice", mesh["far"]);
  show("flattened and axis", mesh.slice({"dp_cp", "tp"}));
  show("everything", mesh.flatten("everything"));
  show("unflattened", mesh.slice({"dp_cp", "tp"}).unflatten("dp_cp", {1, 4}, {"x", "y"}));
  show("unflattened far", mesh["far"].unflatten(0, {2, 2}, {"v", "w"}));
  show("concatenated", DeviceMesh::concatenate({mesh["dp"], mesh["tp"]}));
  const auto plain = init_device_mesh("cpu", {2, 4});
  show("plain", plain);
  show("one", DeviceMesh("cpu", Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
  show("ones", init_device_mesh("cpu", {1, 8, 1}));
  show("from group", DeviceMesh::from_group(mesh.group("dp"), "cpu"));
  const DeviceMesh scattered("cpu", std::vector<Numbers>{{0, 3, 4, 7}, {1, 2, 5, 6}}, {"a", "b"});
  show("scattered", scattered);
  show("few", DeviceMesh("cpu", Numbers{1, 3}));
  show_tensors(plain);
  show_errors(mesh, plain, scattered);
  std::cout << std::flush;
  cohort::barrier();
  return 0;
}
