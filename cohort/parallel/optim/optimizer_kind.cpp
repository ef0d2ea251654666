#include "cohort/parallel/optim/optimizer_kind.h"

#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <list>
#include <mutex>

#include "cohort/parallel/optim/fused_optimizers.h"

namespace cohort::optim {
namespace {

namespace lib = torch::optim;

const PythonOption kFalse{false};
// None lets Python decide how it computes.
const PythonOption kHowToCompute{c10::IValue(), true};
const PythonOption kCapturable{false, true};

// Whether the optimizer corresponds to Python's "fused".
PythonOption fused(bool is_fused) { return {is_fused ? c10::IValue(true) : c10::IValue(), true}; }

template <class Optimizer>
OptimizerKind sgd_kind(bool is_fused) {
  return make_optimizer_kind<Optimizer, lib::SGDOptions, lib::SGDParamState>(
      "SGD",
      [is_fused](lib::SGDOptions& options) {
        return Fields{{"lr", &options.lr()},
                      {"momentum", &options.momentum()},
                      {"dampening", &options.dampening()},
                      {"weight_decay", &options.weight_decay()},
                      {"nesterov", &options.nesterov()},
                      {"maximize", kFalse},
                      {"foreach", kHowToCompute},
                      {"differentiable", kFalse},
                      {"fused", fused(is_fused)}};
      },
      [](lib::SGDParamState& state) {
        return Fields{{"momentum_buffer", &state.momentum_buffer()}};
      },
      [](const lib::SGDOptions& options) {
        return options.momentum() != 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>();
      });
}

template <class Optimizer, class Options, class State>
OptimizerKind adam_kind(const char* name, bool is_fused, bool decouples_weight_decay) {
  return make_optimizer_kind<Optimizer, Options, State>(
      name,
      [=](Options& options) {
        return Fields{{"lr", &options.lr()},
                      {"betas", &options.betas()},
                      {"eps", &options.eps()},
                      {"weight_decay", &options.weight_decay()},
                      {"amsgrad", &options.amsgrad()},
                      {"maximize", kFalse},
                      {"foreach", kHowToCompute},
                      {"capturable", kCapturable},
                      {"differentiable", kFalse},
                      {"fused", fused(is_fused)},
                      {"decoupled_weight_decay", PythonOption{decouples_weight_decay}}};
      },
      [](State& state) {
        return Fields{{"step", StepCount{&state.step()}},
                      {"exp_avg", &state.exp_avg()},
                      {"exp_avg_sq", &state.exp_avg_sq()},
                      {"max_exp_avg_sq", &state.max_exp_avg_sq()}};
      },
      [](const Options& options) {
        std::vector<std::string> tensors{"exp_avg", "exp_avg_sq"};
        if (options.amsgrad()) tensors.emplace_back("max_exp_avg_sq");
        return tensors;
      });
}

OptimizerKind adagrad_kind() {
  return make_optimizer_kind<lib::Adagrad, lib::AdagradOptions, lib::AdagradParamState>(
      "Adagrad",
      [](lib::AdagradOptions& options) {
        return Fields{{"lr", &options.lr()},
                      {"lr_decay", &options.lr_decay()},
                      {"eps", &options.eps()},
                      {"weight_decay", &options.weight_decay()},
                      {"initial_accumulator_value", &options.initial_accumulator_value()},
                      {"foreach", kHowToCompute},
                      {"maximize", kFalse},
                      {"differentiable", kFalse},
                      {"fused", kHowToCompute}};
      },
      [](lib::AdagradParamState& state) {
        return Fields{{"step", StepCount{&state.step()}}, {"sum", &state.sum()}};
      });
}

OptimizerKind rmsprop_kind() {
  return make_optimizer_kind<lib::RMSprop, lib::RMSpropOptions, lib::RMSpropParamState>(
      "RMSprop",
      [](lib::RMSpropOptions& options) {
        return Fields{
            {"lr", &options.lr()},       {"momentum", &options.momentum()}, {"alpha", &options.alpha()},
            {"eps", &options.eps()},     {"centered", &options.centered()}, {"weight_decay", &options.weight_decay()},
            {"capturable", kCapturable}, {"foreach", kHowToCompute},        {"maximize", kFalse},
            {"differentiable", kFalse}};
      },
      [](lib::RMSpropParamState& state) {
        return Fields{{"step", StepCount{&state.step()}},
                      {"square_avg", &state.square_avg()},
                      {"momentum_buffer", &state.momentum_buffer()},
                      {"grad_avg", &state.grad_avg()}};
      },
      [](const lib::RMSpropOptions& options) {
        std::vector<std::string> tensors{"square_avg"};
        if (options.momentum() > 0) tensors.emplace_back("momentum_buffer");
        if (options.centered()) tensors.emplace_back("grad_avg");
        return tensors;
      });
}

OptimizerKind lbfgs_kind() {
  return make_optimizer_kind<lib::LBFGS, lib::LBFGSOptions, lib::LBFGSParamState>(
      "LBFGS",
      [](lib::LBFGSOptions& options) {
        return Fields{{"lr", &options.lr()},
                      {"max_iter", &options.max_iter()},
                      {"max_eval", &options.max_eval()},
                      {"tolerance_grad", &options.tolerance_grad()},
                      {"tolerance_change", &options.tolerance_change()},
                      {"history_size", &options.history_size()},
                      {"line_search_fn", &options.line_search_fn()}};
      },
      [](lib::LBFGSParamState& state) {
        return Fields{{"func_evals", &state.func_evals()},
                      {"n_iter", &state.n_iter()},
                      {"al", &state.al()},
                      {"d", FreeTensor{&state.d()}},
                      {"t", &state.t()},
                      {"old_dirs", &state.old_dirs()},
                      {"old_stps", &state.old_stps()},
                      {"ro", &state.ro()},
                      {"H_diag", FreeTensor{&state.H_diag()}},
                      {"prev_flat_grad", FreeTensor{&state.prev_flat_grad()}},
                      {"prev_loss", &state.prev_loss()}};
      });
}

struct KindTable {
  std::mutex mutex;
  std::list<OptimizerKind> kinds;  // the first that includes an optimizer counts; none is ever removed
};

KindTable& kind_table() {
  static auto& table =
      *new KindTable{{},
                     {sgd_kind<SGD>(true), sgd_kind<lib::SGD>(false),
                      adam_kind<Adam, lib::AdamOptions, lib::AdamParamState>("Adam", true, false),
                      adam_kind<lib::Adam, lib::AdamOptions, lib::AdamParamState>("Adam", false, false),
                      adam_kind<AdamW, lib::AdamWOptions, lib::AdamWParamState>("AdamW", true, true),
                      adam_kind<lib::AdamW, lib::AdamWOptions, lib::AdamWParamState>("AdamW", false, true),
                      adagrad_kind(), rmsprop_kind(), lbfgs_kind()}};
  return table;
}

}  // namespace

void register_optimizer_kind(OptimizerKind kind) {
  std::list<OptimizerKind> added;
  added.push_back(std::move(kind));
  auto& table = kind_table();
  const std::lock_guard lock(table.mutex);
  table.kinds.splice(table.kinds.begin(), added);
}

const OptimizerKind* find_optimizer_kind(const torch::optim::Optimizer& optimizer) {
  auto& table = kind_table();
  std::vector<const OptimizerKind*> kinds;
  {
    const std::lock_guard lock(table.mutex);
    for (const auto& kind : table.kinds) kinds.push_back(&kind);
  }
  for (const auto* const kind : kinds) {
    if (kind->includes(optimizer)) return kind;
  }
  return nullptr;
}

std::string known_optimizer_kinds() {
  auto& table = kind_table();
  std::vector<std::string> names;
  {
    const std::lock_guard lock(table.mutex);
    for (const auto& kind : table.kinds) {
      if (std::find(names.begin(), names.end(), kind.name) == names.end()) names.push_back(kind.name);
    }
  }
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

std::unique_ptr<torch::optim::OptimizerParamState> blank_state(const OptimizerKind& kind,
                                                               const torch::optim::OptimizerOptions& options,
                                                               const at::Tensor& parameter) {
  const auto tensors = kind.tensors ? kind.tensors(options) : std::vector<std::string>();
  if (tensors.empty()) return nullptr;
  auto state = kind.make_state();
  for (const auto& [key, place] : kind.state(*state)) {
    auto* const* const tensor = std::get_if<at::Tensor*>(&place);
    if (tensor && std::find(tensors.begin(), tensors.end(), key) != tensors.end()) {
      **tensor = at::zeros_like(parameter.detach());
    }
  }
  return state;
}

}  // namespace cohort::optim
