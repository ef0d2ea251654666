/// OptimizerKind: the state of a type of optimizer, by the names and in the order of Python's state dicts. One table serves
/// everything that reads or writes states by name: checkpoints, Python's state dicts, and code that shards states among ranks.
///
/// LibTorch's SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS, and classes derived from them, are known. To add an optimizer of your
/// own:
///
///     cohort::optim::register_optimizer_kind(cohort::optim::make_optimizer_kind<Lion, LionOptions, LionState>(
///         "Lion",
///         [](LionOptions& options) { return cohort::optim::Fields{{"lr", &options.lr()}, {"betas", &options.betas()}}; },
///         [](LionState& state) { return cohort::optim::Fields{{"exp_avg", &state.exp_avg()}}; },
///         [](const LionOptions&) { return std::vector<std::string>{"exp_avg"}; }));
///
/// Thread-safe; the functions of a kind may be called from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/export.h"

namespace cohort::optim {

/// The number of updates of a parameter: Python keeps it as a float32 tensor of one element.
struct StepCount {
  int64_t* value;
};
/// A tensor of other sizes than the parameter's, such as LBFGS has for all parameters together.
struct FreeTensor {
  at::Tensor* value;
};
/// An option of Python's optimizer that this one does not have.
struct PythonOption {
  /// The value that is written, and accepted.
  c10::IValue value = {};
  /// Accepts every value, because the option decides how Python computes, not what.
  bool accepts_all = false;
};

/// The place of a field, in the options or the state that the list was made for; valid as long as they live. Undefined tensors
/// and absent lists are left out of state dicts; at::Tensor* has the sizes of the parameter.
using FieldPlace = std::variant<double*, int64_t*, bool*, std::tuple<double, double>*, std::optional<int64_t>*,
                                std::optional<std::string>*, StepCount, at::Tensor*, FreeTensor,
                                std::deque<at::Tensor>*, std::optional<std::vector<at::Tensor>>*, PythonOption>;
struct Field {
  std::string key;
  FieldPlace place;
};
using Fields = std::vector<Field>;

struct OptimizerKind {
  /// For messages.
  std::string name;
  std::function<bool(const torch::optim::Optimizer& optimizer)> includes;
  std::function<Fields(torch::optim::OptimizerOptions& options)> options;
  std::function<Fields(torch::optim::OptimizerParamState& state)> state;
  std::function<std::unique_ptr<torch::optim::OptimizerParamState>()> make_state;
  /// Returns the names of the tensors that a state has with these options. If null, or if the list is empty, a parameter that was
  /// not updated has no state to describe.
  std::function<std::vector<std::string>(const torch::optim::OptimizerOptions& options)> tensors;
};

template <class Optimizer, class Options, class State>
OptimizerKind make_optimizer_kind(std::string name, std::function<Fields(Options&)> options,
                                  std::function<Fields(State&)> state,
                                  std::function<std::vector<std::string>(const Options&)> tensors = {}) {
  OptimizerKind kind;
  kind.name = std::move(name);
  kind.includes = [](const torch::optim::Optimizer& optimizer) {
    return dynamic_cast<const Optimizer*>(&optimizer) != nullptr;
  };
  kind.options = [options = std::move(options)](torch::optim::OptimizerOptions& of) {
    return options(static_cast<Options&>(of));
  };
  kind.state = [state = std::move(state)](torch::optim::OptimizerParamState& of) {
    return state(static_cast<State&>(of));
  };
  kind.make_state = [] { return std::make_unique<State>(); };
  if (tensors) {
    kind.tensors = [tensors = std::move(tensors)](const torch::optim::OptimizerOptions& of) {
      return tensors(static_cast<const Options&>(of));
    };
  }
  return kind;
}

/// Registers the kind for the rest of the program. If several kinds include an optimizer, the one registered last counts.
COHORT_API void register_optimizer_kind(OptimizerKind kind);
/// Returns null if the kind is unknown. The kind lives as long as the program.
COHORT_API const OptimizerKind* find_optimizer_kind(const torch::optim::Optimizer& optimizer);

/// Returns "SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS", with the registered kinds.
COHORT_API std::string known_optimizer_kinds();

/// Returns the state before the first step: zeros of the parameter's sizes. Null if there is nothing to describe.
COHORT_API std::unique_ptr<torch::optim::OptimizerParamState> blank_state(const OptimizerKind& kind,
                                                                          const torch::optim::OptimizerOptions& options,
                                                                          const at::Tensor& parameter);

}  // namespace cohort::optim
