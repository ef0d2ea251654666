// What dtensor_python_rank.py prints in Python: DTensors made, moved and calculated with, how results lie, gradients.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/dtensor/api/factories.h"
#include "cohort/dtensor/wrapper/comm_counts.h"

namespace {

using namespace cohort;

std::string values(const at::Tensor& tensor) {
  std::ostringstream out;
  for (const int64_t size : tensor.sizes()) out << size << " ";
  out << ":";
  const auto flat = tensor.detach().to(at::kDouble).contiguous().view(-1);
  for (int64_t i = 0; i < flat.numel(); ++i) out << " " << std::llround(flat[i].item<double>() * 1000);
  return out.str();
}

void show(const std::string& name, const at::Tensor& tensor) {
  const DTensor one(tensor);
  std::string placements;
  for (const auto& placement : one.placements()) placements += placement.to_string() + " ";
  std::cout << name << " " << placements << "local " << values(one.to_local()) << " full " << values(one.full_tensor())
            << "\n";
}

at::Tensor numbers(c10::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count, at::kDouble).view(sizes).remainder(7).sub(3);
}

DTensor placed(c10::IntArrayRef sizes, const DeviceMesh& mesh, const Placement& placement) {
  DTensor tensor(distribute_tensor(numbers(sizes), mesh, {placement}));
  tensor.set_requires_grad(true);
  return tensor;
}

template <class Fn>
void show_error(const std::string& name, Fn fn) {
  try {
    fn();
    std::cout << name << " (no error)\n";
  } catch (const c10::Error& error) {
    std::cout << name << " " << error.what_without_backtrace() << "\n";
  }
}

void show_moves(const DeviceMesh& mesh) {
  const Placements choices{Replicate(), Shard(0), Shard(1), Partial()};
  for (const auto& from : choices) {
    for (const auto& to : choices) {
      if (to.is_partial()) continue;
      auto tensor = placed({5, 3}, mesh, from);
      const auto before = dtensor::comm_counts();
      const auto moved = tensor.redistribute({to});
      const auto used = dtensor::comm_counts() - before;
      const bool exchanges = from.is_shard() && to.is_shard() && !(from == to);  // on the CPU Python gathers
      const auto counts = c10::str(used.all_reduce, used.all_gather, used.reduce_scatter, used.all_to_all);
      std::cout << from << " to " << to << " collectives " << (exchanges ? "exchange" : counts) << "\n";
      show("moved", moved);
      moved.mul(2).sum().backward();
      show("gradient", tensor.grad());
    }
  }
}

void show_products(const DeviceMesh& mesh) {
  const Placements choices{Replicate(), Shard(0), Shard(1)};
  for (const auto& first : choices) {
    for (const auto& second : choices) {
      auto a = placed({4, 6}, mesh, first), b = placed({6, 2}, mesh, second);
      const auto product = a.mm(b);
      // Which of the ways is taken is a matter of cost; these have no choice.
      const bool is_known = !(first.is_shard(0) && second.is_shard(0)) && !(first.is_shard(1) && second.is_shard(1));
      std::cout << first << " mm " << second << " "
                << (is_known ? DTensor(product).placements()[0].to_string() : std::string("any")) << "\n";
      product.sum().backward();
      std::cout << "full " << values(DTensor(product.detach()).full_tensor()) << " gradients "
                << values(DTensor(a.grad()).full_tensor()) << " " << values(DTensor(b.grad()).full_tensor()) << "\n";
    }
  }
}

void show_operations(const DeviceMesh& mesh) {
  for (const Placement& placement : Placements{Shard(0), Shard(1)}) {
    const auto x = placed({4, 6}, mesh, placement).detach();
    show("relu", x.relu());
    show("sum 0", x.sum(0));
    show("sum 1", x.sum(1));
    show("t", x.t());
    show("softmax", DTensor(x.softmax(0)).redistribute({Replicate()}));
    show("plus", x + x);
    show("unsqueeze", x.unsqueeze(0));
  }
  show("ones", dtensor::ones({5, 2}, mesh, {Shard(0)}));
  show("full", dtensor::full({5, 2}, 2.5, mesh, {Shard(1)}));
  show("zeros", dtensor::zeros({3}, mesh));
}

void show_borders(const DeviceMesh& mesh) {
  const int rank = get_rank();
  show("from_local", DTensor::from_local(at::full({2, 2}, rank + 1, at::kDouble), mesh, {Shard(1)}));
  show("partial", DTensor::from_local(at::full({2}, rank + 1, at::kDouble), mesh, {Partial()}));
  show("odd", DTensor::from_local(at::ones({2 - rank}, at::kDouble), mesh, {Shard(0)}, {.shape = {3}, .stride = {1}}));
  auto x = placed({4, 2}, mesh, Shard(0));
  (x.to_local() * (rank + 1)).sum().backward();
  show("to_local gradient", x.grad());
  const auto tensor = placed({4}, mesh, Shard(0));
  show_error("to partial", [&] { tensor.redistribute({Partial()}); });
  show_error("placements", [&] { (void)DTensor(distribute_tensor(at::ones({4}), mesh, {Shard(0), Shard(0)})); });
}

}  // namespace

int main() {
  init_process_group("gloo");
  const auto mesh = init_device_mesh("cpu", {get_world_size()});
  show_moves(mesh);
  show_products(mesh);
  show_operations(mesh);
  show_borders(mesh);
  destroy_process_group();
  return 0;
}
