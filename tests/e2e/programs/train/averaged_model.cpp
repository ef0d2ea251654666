// averaged_model FROM TO: averages of the states of a model, and update_bn. FROM: Python's {"states": of the model after each
// step, "batches": for update_bn}; TO: {way: {"averages": state dicts after each update}, "bn": state dict}. With the cases of
// tests/e2e/train/averaged_model_test.py.
#include <ATen/ops/max.h>
#include <cohort/checkpoint/file/torch_file.h>
#include <cohort/checkpoint/state/python_state.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/train/optim/averaged_model.h>
#include <cohort/train/optim/update_bn.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace optim = cohort::optim;
namespace checkpoint = cohort::checkpoint;
using Dict = c10::impl::GenericDict;

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { NetImpl::reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(4, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    last = register_module("last", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return last(norm(first(x)).relu()); }

  torch::nn::Linear first = nullptr, last = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};
TORCH_MODULE(Net);

Dict new_dict() { return Dict(c10::StringType::get(), c10::AnyType::get()); }

at::Tensor larger(const at::Tensor& averaged, const at::Tensor& current, const at::Tensor& n_averaged) {
  return at::max(averaged, current) + n_averaged.to(current.dtype());
}

std::map<std::string, optim::AveragedModelOptions> ways() {
  return {{"mean", {}},
          {"mean_with_buffers", {.use_buffers = true}},
          {"mean_multi", {.multi_avg_fn = optim::get_swa_multi_avg_fn()}},
          {"ema", {.multi_avg_fn = optim::get_ema_multi_avg_fn(0.9), .use_buffers = true}},
          {"ema_single", {.avg_fn = optim::get_ema_avg_fn(0.8)}},
          {"own", {.avg_fn = larger, .use_buffers = true}},
          {"copy", {.multi_avg_fn = optim::get_ema_multi_avg_fn(), .copy = Net().ptr()}}};
}

void load(Net& net, const c10::IValue& state) { checkpoint::load_state_dict(*net, checkpoint::tensors_in(state)); }

Dict averages_of(const optim::AveragedModelOptions& options, const c10::List<c10::IValue>& states) {
  Net net;
  load(net, states.get(0));
  optim::AveragedModel average(net, options);
  c10::impl::GenericList averages(c10::AnyType::get());
  for (size_t i = 0; i < states.size(); ++i) {
    load(net, states.get(i));
    average->update_parameters(*net);
    checkpoint::StateDict copies;
    for (const auto& item : checkpoint::state_dict(*average)) copies.insert(item.key(), item.value().clone());
    averages.push_back(checkpoint::python_dict(copies));
  }
  auto result = new_dict();
  result.insert("averages", averages);
  return result;
}

c10::IValue with_statistics(const c10::List<c10::IValue>& states, const c10::List<c10::IValue>& batches) {
  Net net;
  load(net, states.get(states.size() - 1));
  optim::AveragedModel average(net);
  average->eval();
  std::vector<std::pair<at::Tensor, at::Tensor>> loader;
  for (const c10::IValue& batch : batches) loader.emplace_back(batch.toTensor(), at::Tensor());
  optim::update_bn(loader, average);
  TORCH_CHECK(!average->module().is_training());
  return checkpoint::python_dict(checkpoint::state_dict(*average));
}

}  // namespace

int main(int, char** argv) {
  try {
    const Dict from = checkpoint::load(argv[1]).toGenericDict();
    const auto states = from.at("states").toList();
    auto results = new_dict();
    for (const auto& [name, options] : ways()) results.insert(name, averages_of(options, states));
    results.insert("bn", with_statistics(states, from.at("batches").toList()));
    checkpoint::save(results, argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
