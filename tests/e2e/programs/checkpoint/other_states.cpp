// Goes on with schedulers, a GradScaler and random numbers: other_states FROM TO. FROM and TO are pickles of dicts.
#include <ATen/ops/rand.h>
#include <cohort/checkpoint/optimizer/scheduler_state.h>
#include <cohort/checkpoint/state/python_state.h>
#include <cohort/checkpoint/state/rng_state.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/comm/pickle/pickle.h>
#include <cohort/parallel/optim/grad_scaler.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace {

namespace checkpoint = cohort::checkpoint;
using Dict = c10::impl::GenericDict;
using Plateau = torch::optim::ReduceLROnPlateauScheduler;

Dict new_dict() { return Dict(c10::StringType::get(), c10::AnyType::get()); }

// {"rates": one for each step, "state": then}. `step` is called with its number.
template <class Scheduler, class Step>
Dict go_on(Scheduler& scheduler, torch::optim::SGD& optimizer, int64_t num_steps, Step step) {
  c10::List<double> rates;
  for (int64_t i = 0; i < num_steps; ++i) {
    step(i);
    rates.push_back(optimizer.param_groups()[0].options().get_lr());
  }
  auto result = new_dict();
  result.insert("rates", rates);
  result.insert("state", checkpoint::scheduler_state_dict(scheduler, optimizer));
  return result;
}

Dict step_lr(const Dict& from, torch::optim::SGD& optimizer) {
  torch::optim::StepLR scheduler(optimizer, 3, 0.5);
  checkpoint::load_scheduler_state_dict(scheduler, from.at("state"));
  return go_on(scheduler, optimizer, 5, [&](int64_t) { scheduler.step(); });
}

Dict plateau(const Dict& from, torch::optim::SGD& optimizer) {
  Plateau scheduler(optimizer);
  checkpoint::load_scheduler_state_dict(scheduler, from.at("state"));
  const auto metrics = from.at("metrics").toList();
  return go_on(scheduler, optimizer, static_cast<int64_t>(metrics.size()),
               [&](int64_t i) { scheduler.step(static_cast<float>(metrics.get(i).toDouble())); });
}

template <class Run>
Dict with_optimizer(const Dict& from, Run run) {
  torch::optim::SGD optimizer({torch::ones({2}, torch::requires_grad())}, from.at("rate").toDouble());
  return run(from, optimizer);
}

Dict random_numbers(const c10::IValue& states) {
  checkpoint::set_all_rng_states(states);
  auto result = new_dict();
  result.insert("numbers", at::rand({8}));
  result.insert("states", checkpoint::all_rng_states());
  return result;
}

Dict module_of() {
  const torch::nn::Sequential net(torch::nn::Conv2d(1, 2, 3), torch::nn::BatchNorm2d(2));
  auto result = new_dict();
  result.insert("state", checkpoint::python_dict(checkpoint::state_dict(*net)));
  result.insert("metadata", checkpoint::state_dict_metadata(*net));
  return result;
}

}  // namespace

int main(int, char** argv) {
  std::ifstream file(argv[1], std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const Dict from = cohort::comm::unpickle(bytes).toGenericDict();
  auto to = new_dict();
  to.insert("step_lr", with_optimizer(from.at("step_lr").toGenericDict(), step_lr));
  to.insert("plateau", with_optimizer(from.at("plateau").toGenericDict(), plateau));
  to.insert("random", random_numbers(from.at("random")));
  to.insert("module", module_of());
  cohort::amp::GradScaler scaler({.device = at::kCPU});
  scaler.load_state_dict(from.at("scaler"));
  to.insert("scaler", scaler.state_dict());
  std::ofstream(argv[2], std::ios::binary) << cohort::comm::pickle(to);
  return 0;
}
