// lr_schedulers FROM TO: every scheduler over 200 steps, and on from Python's states. FROM: Python's {"metrics": numbers of
// ReduceLROnPlateau, case: {"optimizer": state in the middle, "scheduler": state}}; TO: {case: {"rates": of all steps, "momenta",
// "middle": our states, "rest": rates from Python's states on}}. tests/e2e/train/lr_schedulers_test.py has the same cases.
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <cohort/checkpoint/file/torch_file.h>
#include <cohort/checkpoint/optimizer/optimizer_state.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/train/optim/lr_scheduler.h>
#include <torch/optim/rmsprop.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace optim = cohort::optim;
namespace checkpoint = cohort::checkpoint;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using Scheduler = std::shared_ptr<optim::LRScheduler>;
using Dict = c10::impl::GenericDict;

constexpr int kNumSteps = 200;
constexpr int kMiddle = 77;

Dict new_dict() { return Dict(c10::StringType::get(), c10::AnyType::get()); }

template <class Kind, class Options>
std::unique_ptr<Optimizer> with_groups(const Options& first, const Options& second) {
  std::vector<OptimizerParamGroup> groups;
  for (const auto& options : {first, second}) {
    groups.emplace_back(std::vector<at::Tensor>{at::ones({2}, at::requires_grad())},
                        std::make_unique<Options>(options));
  }
  return std::make_unique<Kind>(groups, first);
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& kind) {
  using torch::optim::RMSpropOptions;
  using torch::optim::SGDOptions;
  if (kind == "adamw") {
    using torch::optim::AdamWOptions;
    return with_groups<optim::AdamW>(AdamWOptions(0.1).betas({0.8, 0.95}), AdamWOptions(0.02).betas({0.7, 0.9}));
  }
  if (kind == "rmsprop") {
    return with_groups<torch::optim::RMSprop>(RMSpropOptions(0.1).momentum(0.5), RMSpropOptions(0.02).momentum(0.4));
  }
  return with_groups<torch::optim::SGD>(SGDOptions(0.1).momentum(0.9), SGDOptions(0.02).momentum(0.6));
}

// Beta1 or momentum of a group.
double momentum_of(Optimizer& optimizer, const std::string& kind, size_t group) {
  const auto& options = optimizer.param_groups()[group].options();
  if (kind == "adamw") return std::get<0>(static_cast<const torch::optim::AdamWOptions&>(options).betas());
  if (kind == "rmsprop") return static_cast<const torch::optim::RMSpropOptions&>(options).momentum();
  return static_cast<const torch::optim::SGDOptions&>(options).momentum();
}

struct Case {
  std::string optimizer;
  std::function<Scheduler(Optimizer&)> make;
};

template <class Kind, class... Arguments>
Case of(const std::string& optimizer, Arguments... arguments) {
  return {optimizer, [=](Optimizer& of) { return std::make_shared<Kind>(of, arguments...); }};
}

Case sequential(std::function<optim::SchedulerList(Optimizer&)> parts, std::vector<int64_t> milestones) {
  return {"sgd", [=](Optimizer& of) { return std::make_shared<optim::SequentialLR>(of, parts(of), milestones); }};
}

double shrink(int64_t epoch) { return std::pow(0.95, static_cast<double>(epoch)); }

std::map<std::string, Case> factor_cases() {
  using optim::RateFactor;
  using Factors = std::vector<RateFactor>;
  return {{"step", of<optim::StepLR>("sgd", 7, 0.9)},
          {"multi_step", of<optim::MultiStepLR>("adamw", std::vector<int64_t>{80, 5, 5, 120}, 0.3)},
          {"constant", of<optim::ConstantLR>("sgd", 0.3, 90)},
          {"linear", of<optim::LinearLR>("sgd", 0.1, 0.7, 100)},
          {"exponential", of<optim::ExponentialLR>("adamw", 0.97)},
          {"polynomial", of<optim::PolynomialLR>("sgd", 150, 1.7)},
          {"lambda", of<optim::LambdaLR>("sgd", RateFactor(shrink))},
          {"lambdas", of<optim::LambdaLR>("sgd", Factors{shrink, [](int64_t epoch) { return 1.0 / (1.0 + epoch); }})},
          {"multiplicative", of<optim::MultiplicativeLR>("sgd", RateFactor([](int64_t) { return 0.95; }))}};
}

std::map<std::string, Case> curve_cases() {
  using optim::Annealing;
  using optim::PerGroup;
  const optim::OneCycleOptions linear{.epochs = 20,
                                      .steps_per_epoch = 10,
                                      .pct_start = 0.45,
                                      .anneal_strategy = Annealing::kLinear,
                                      .base_momentum = {0.8, 0.7},
                                      .max_momentum = {0.9, 0.95},
                                      .div_factor = 10,
                                      .final_div_factor = 100,
                                      .three_phase = true};
  const optim::CyclicOptions triangular2{.step_size_up = 13, .mode = optim::CyclicMode::kTriangular2};
  const optim::CyclicOptions range{
      .step_size_up = 11, .step_size_down = 17, .mode = optim::CyclicMode::kExpRange, .gamma = 0.99};
  const optim::CyclicOptions own{.step_size_up = 9,
                                 .scale_fn = [](double x) { return 0.9 / x; },
                                 .scale_mode = optim::ScaleMode::kCycle,
                                 .cycle_momentum = false};
  return {
      {"cosine", of<optim::CosineAnnealingLR>("sgd", 30, 0.001)},
      {"warm_restarts", of<optim::CosineAnnealingWarmRestarts>("sgd", 9, 2, 0.001)},
      {"warm_restarts_in_epochs", of<optim::CosineAnnealingWarmRestarts>("sgd", 9, 3)},
      {"warm_restarts_alike", of<optim::CosineAnnealingWarmRestarts>("adamw", 9)},
      {"one_cycle", of<optim::OneCycleLR>("adamw", PerGroup(0.3), optim::OneCycleOptions{.total_steps = 200})},
      {"one_cycle_linear", of<optim::OneCycleLR>("sgd", PerGroup{0.3, 0.1}, linear)},
      {"cyclic", of<optim::CyclicLR>("sgd", PerGroup{0.01, 0.02}, PerGroup(0.2), triangular2)},
      {"cyclic_range", of<optim::CyclicLR>("adamw", PerGroup(0.01), PerGroup(0.2), range)},
      {"cyclic_plain",
       of<optim::CyclicLR>("rmsprop", PerGroup(0.01), PerGroup(0.2), optim::CyclicOptions{.step_size_up = 10})},
      {"cyclic_own", of<optim::CyclicLR>("rmsprop", PerGroup(0.01), PerGroup(0.2), own)},
      {"swa", of<optim::SWALR>("sgd", PerGroup{0.3, 0.005}, 40)},
      {"swa_linear", of<optim::SWALR>("adamw", PerGroup(0.05), 90, Annealing::kLinear)},
      {"plateau", of<optim::ReduceLROnPlateau>(
                      "sgd",
                      optim::PlateauOptions{
                          .factor = 0.8, .patience = 2, .threshold = 0.01, .cooldown = 1, .min_lr = {0.02, 0.001}})},
      {"plateau_max",
       of<optim::ReduceLROnPlateau>("adamw", optim::PlateauOptions{.mode = optim::PlateauMode::kMax,
                                                                   .factor = 0.5,
                                                                   .patience = 5,
                                                                   .threshold_mode = optim::ThresholdMode::kAbs})}};
}

std::map<std::string, Case> combined_cases() {
  const auto warm_up = [](Optimizer& of) -> optim::SchedulerList {
    return {std::make_shared<optim::LinearLR>(of, 0.1, 1.0, 10), std::make_shared<optim::CosineAnnealingLR>(of, 190),
            std::make_shared<optim::CosineAnnealingWarmRestarts>(of, 20)};
  };
  const auto all_closed_forms = [](Optimizer& of) -> optim::SchedulerList {
    return {std::make_shared<optim::ConstantLR>(of, 0.5, 3),
            std::make_shared<optim::StepLR>(of, 4, 0.5),
            std::make_shared<optim::MultiStepLR>(of, std::vector<int64_t>{0, 7, 9}, 0.5),
            std::make_shared<optim::PolynomialLR>(of, 30, 2.0),
            std::make_shared<optim::ExponentialLR>(of, 0.9),
            std::make_shared<optim::LinearLR>(of, 0.3, 0.9, 12),
            std::make_shared<optim::LambdaLR>(of, optim::RateFactor(shrink)),
            std::make_shared<optim::ConstantLR>(of, 0.25, 7)};
  };
  const auto nested = [](Optimizer& of) -> optim::SchedulerList {
    const optim::SchedulerList both{std::make_shared<optim::ExponentialLR>(of, 0.97),
                                    std::make_shared<optim::ConstantLR>(of, 0.5, 20)};
    return {std::make_shared<optim::ChainedScheduler>(both), std::make_shared<optim::CosineAnnealingLR>(of, 60)};
  };
  const auto chained = [](Optimizer& of) -> Scheduler {
    return std::make_shared<optim::ChainedScheduler>(optim::SchedulerList{
        std::make_shared<optim::ConstantLR>(of, 0.1, 20), std::make_shared<optim::ExponentialLR>(of, 0.98),
        std::make_shared<optim::CosineAnnealingLR>(of, 50, 0.01)});
  };
  return {{"sequential", sequential(warm_up, {10, 120})},
          {"sequential_closed", sequential(all_closed_forms, {10, 30, 50, 76, 77, 78, 140})},
          {"sequential_nested", sequential(nested, {90})},
          {"chained", {"adamw", chained}}};
}

struct Run {
  const Case& what;
  std::string name;
  std::vector<double> metrics;
  std::unique_ptr<Optimizer> optimizer = make_optimizer(what.optimizer);
  Scheduler scheduler = what.make(*optimizer);
  std::vector<double> rates = {}, momenta = {};

  void record() {
    for (size_t i = 0; i < 2; ++i) {
      rates.push_back(optimizer->param_groups()[i].options().get_lr());
      momenta.push_back(momentum_of(*optimizer, what.optimizer, i));
    }
  }

  void take_steps(int from, int to) {
    for (int i = from; i < to; ++i) {
      auto* const plateau = dynamic_cast<optim::ReduceLROnPlateau*>(scheduler.get());
      auto* const restarts = dynamic_cast<optim::CosineAnnealingWarmRestarts*>(scheduler.get());
      if (plateau) {
        plateau->step(metrics.at(static_cast<size_t>(i)));
      } else if (restarts && name == "warm_restarts_in_epochs" && i % 5 != 0) {
        restarts->step(i / 3.0);
      } else {
        scheduler->step();
      }
      record();
    }
  }

  Dict states() const {
    auto dict = new_dict();
    dict.insert("optimizer", checkpoint::optimizer_state_dict(*optimizer));
    dict.insert("scheduler", scheduler->state_dict());
    return dict;
  }
};

Dict result_of(const std::string& name, const Case& what, const std::vector<double>& metrics, const Dict& states) {
  Run whole{what, name, metrics};
  whole.record();
  whole.take_steps(0, kMiddle);
  const auto middle = whole.states();
  whole.take_steps(kMiddle, kNumSteps);
  Run rest{what, name, metrics};
  checkpoint::load_optimizer_state_dict(*rest.optimizer, states.at("optimizer"));
  rest.scheduler->load_state_dict(states.at("scheduler"));
  rest.take_steps(kMiddle, kNumSteps);
  auto result = new_dict();
  result.insert("rates", at::tensor(whole.rates, at::kDouble));
  result.insert("momenta", at::tensor(whole.momenta, at::kDouble));
  result.insert("middle", middle);
  result.insert("rest", at::tensor(rest.rates, at::kDouble));
  result.insert("rest_momenta", at::tensor(rest.momenta, at::kDouble));
  return result;
}

}  // namespace

int main(int, char** argv) {
  try {
    const Dict from = checkpoint::load(argv[1]).toGenericDict();
    const auto given = from.at("metrics").toTensor();
    const std::vector<double> metrics(given.const_data_ptr<double>(), given.const_data_ptr<double>() + given.numel());
    auto results = new_dict();
    for (const auto& cases : {factor_cases(), curve_cases(), combined_cases()}) {
      for (const auto& [name, what] : cases) {
        results.insert(name, result_of(name, what, metrics, from.at(name).toGenericDict()));
      }
    }
    checkpoint::save(results, argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
