// functional_rank BACKEND RESULT: values, gradients and gradients of gradients of every functional collective on this rank.
// functional_python_rank.py makes the same calls.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <iostream>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/functional/functional.h"
#include "cohort/parallel/functional/functional_collectives.h"

namespace {

namespace fc = cohort::functional;
namespace nnf = cohort::nn::functional;
using cohort::Group;
using cohort::ReduceOp;
using Tensors = std::vector<at::Tensor>;
using Splits = std::vector<int64_t>;

struct Recorder {
  std::map<std::string, at::Tensor> results;
  std::string prefix;
  int seed = 0;

  // `shapes` of the inputs. Values that are undefined on this rank are not recorded. PyTorch has no gradient of the gradient
  // for its functional collectives, "f.".
  void run(const std::string& name, const std::vector<Splits>& shapes, const std::function<Tensors(Tensors)>& function,
           bool record_values = true) {
    at::manual_seed(100 * ++seed + cohort::get_rank());
    Tensors inputs;
    for (const auto& shape : shapes) inputs.push_back(at::randn(shape).set_requires_grad(true));
    Tensors squares;
    for (const auto& input : inputs) squares.push_back(input * input);
    const auto outputs = function(squares);
    at::Tensor loss = at::zeros({});
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (record_values) results[key(name, "value", i)] = outputs[i].detach().clone();
      loss = loss + (outputs[i].pow(3) * at::randn(outputs[i].sizes())).sum();
    }
    const bool has_second = name.rfind("f.", 0) != 0;
    const auto first = torch::autograd::grad({loss}, inputs, {}, std::nullopt, /*create_graph=*/has_second);
    at::Tensor second_loss = at::zeros({});
    for (size_t i = 0; i < first.size(); ++i) {
      results[key(name, "gradient", i)] = first[i].detach().clone();
      second_loss = second_loss + first[i].pow(2).sum();
    }
    if (!has_second) return;
    const auto second = torch::autograd::grad({second_loss}, inputs);
    for (size_t i = 0; i < second.size(); ++i) results[key(name, "second", i)] = second[i].contiguous();
  }

  std::string key(const std::string& name, const char* kind, size_t i) const {
    return prefix + "." + name + "." + kind + "." + std::to_string(i);
  }
};

void run_nn(Recorder& record, const Group& group, int root) {
  const int rank = cohort::get_rank(group);
  const int size = cohort::get_world_size(group);
  const bool is_root = cohort::get_rank() == root;
  const std::vector<Splits> one(1, Splits{2, 3});
  const std::vector<Splits> many(size, Splits{2, 3});
  record.run("broadcast", one, [&](Tensors x) { return Tensors{nnf::broadcast(x[0], root, group)}; });
  record.run("gather", one, [&](Tensors x) { return nnf::gather(x[0].t(), root, group); });
  record.run("scatter", many, [&](Tensors x) { return Tensors{nnf::scatter(x, root, group)}; });
  record.run(
      "reduce", one,
      [&](Tensors x) {
        auto sum = nnf::reduce(x[0], root, ReduceOp::SUM, group);
        return Tensors{is_root ? sum : sum * 0};
      },
      is_root);
  record.run("reduce_scatter", many, [&](Tensors x) {
    return Tensors{nnf::reduce_scatter(at::empty({2, 3}), x, ReduceOp::SUM, group)};
  });
  record.run("all_gather", one, [&](Tensors x) { return nnf::all_gather(x[0], group); });
  Tensors room;
  for (int r = 0; r < size; ++r) room.push_back(at::empty({2, 3}));
  record.run("all_to_all", many, [&](Tensors x) { return nnf::all_to_all(room, x, group); });
  Splits sent;
  Splits received;
  for (int r = 0; r < size; ++r) {
    sent.push_back(r);
    received.push_back(rank);
  }
  record.run("all_to_all_single", {{size * (size - 1) / 2, 2}}, [&](Tensors x) {
    return Tensors{nnf::all_to_all_single(at::empty({rank * size, 2}), x[0], received, sent, group)};
  });
  record.run("all_to_all_equal", {{size * 2, 2}}, [&](Tensors x) {
    return Tensors{nnf::all_to_all_single(at::empty({size * 2, 2}), x[0], {}, {}, group)};
  });
  record.run("all_reduce", one, [&](Tensors x) { return Tensors{nnf::all_reduce(x[0].t(), ReduceOp::SUM, group)}; });
}

Tensors waited(Tensors tensors) {
  for (auto& tensor : tensors) tensor = fc::wait_tensor(tensor);
  return tensors;
}

void run_functional(Recorder& record, const Group& group) {
  const int rank = cohort::get_rank(group);
  const int size = cohort::get_world_size(group);
  const std::vector<Splits> one(1, Splits{2 * size, 3 * size});
  const std::vector<Splits> two{{size, 2}, {3, 2 * size}};
  record.run("f.all_reduce", one, [&](Tensors x) { return waited({fc::all_reduce(x[0].t(), ReduceOp::SUM, group)}); });
  for (const int64_t dim : {0, 1}) {
    const auto suffix = std::to_string(dim);
    record.run("f.all_gather" + suffix, one,
               [&](Tensors x) { return waited({fc::all_gather_single(x[0], dim, group)}); });
    record.run("f.reduce_scatter" + suffix, one,
               [&](Tensors x) { return waited({fc::reduce_scatter_single(x[0], ReduceOp::SUM, dim, group)}); });
  }
  record.run("f.all_reduce_coalesced", two,
             [&](Tensors x) { return waited(fc::all_reduce_coalesced(x, ReduceOp::SUM, group)); });
  record.run("f.all_gather_coalesced", two,
             [&](Tensors x) { return waited(fc::all_gather_single_coalesced(x, group)); });
  record.run("f.reduce_scatter_coalesced", two, [&](Tensors x) {
    return waited(fc::reduce_scatter_single_coalesced(x, ReduceOp::SUM, {0, 1}, group));
  });
  Splits sent;
  Splits turn;
  for (int r = 0; r < size; ++r) {
    sent.push_back(r + 1);
    turn.push_back((r + 1) % size);
  }
  const Splits received(size, rank + 1);
  record.run("f.all_to_all", {{size * (size + 1) / 2, 2}},
             [&](Tensors x) { return waited({fc::all_to_all_single(x[0], received, sent, group)}); });
  record.run("f.all_to_all_equal", one,
             [&](Tensors x) { return waited({fc::all_to_all_single(x[0], std::nullopt, std::nullopt, group)}); });
  record.run("f.permute", {{4}}, [&](Tensors x) { return waited({fc::permute_tensor(x[0], turn, group)}); });
  at::manual_seed(cohort::get_rank());
  record.results[record.prefix + ".f.broadcast"] = fc::wait_tensor(fc::broadcast(at::randn({5}), size - 1, group));
  record.results[record.prefix + ".f.max"] = fc::wait_tensor(fc::all_reduce(at::randn({5}), ReduceOp::MAX, group));
}

}  // namespace

int main(int, char** argv) {
  try {
    cohort::init_process_group(argv[1]);
    Recorder record;
    const int last = cohort::get_world_size() - 1;
    for (const int root : {0, last}) {
      record.prefix = "root" + std::to_string(root);
      run_nn(record, {}, root);
    }
    record.prefix = "world";
    run_functional(record, {});
    const auto pair = cohort::new_group({0, 1});
    if (cohort::is_member(pair)) {
      record.prefix = "pair";
      run_nn(record, pair, 1);
      run_functional(record, pair);
    }
    cohort::checkpoint::StateDict results;
    for (const auto& [name, tensor] : record.results) results.insert(name, tensor.detach().contiguous());
    cohort::checkpoint::save_file(results, argv[2]);
    cohort::destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
