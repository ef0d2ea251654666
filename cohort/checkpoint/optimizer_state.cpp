#include "cohort/checkpoint/optimizer_state.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <concepts>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cohort/base/text.h"

namespace cohort::checkpoint {
namespace {

namespace optim = torch::optim;

// One list of fields per options and state type serves both directions: `io` reads or writes each field.
template <typename T>
concept AdamLikeOptions = requires(T& options) {
  options.amsgrad();
};

void visit(auto& io, std::derived_from<optim::SGDOptions> auto& options) {
  io("lr", options.lr());
  io("momentum", options.momentum());
  io("dampening", options.dampening());
  io("weight_decay", options.weight_decay());
  io("nesterov", options.nesterov());
}
void visit(auto& io, AdamLikeOptions auto& options) {
  io("lr", options.lr());
  io("betas", options.betas());
  io("eps", options.eps());
  io("weight_decay", options.weight_decay());
  io("amsgrad", options.amsgrad());
}
void visit(auto& io, std::derived_from<optim::AdagradOptions> auto& options) {
  io("lr", options.lr());
  io("lr_decay", options.lr_decay());
  io("weight_decay", options.weight_decay());
  io("initial_accumulator_value", options.initial_accumulator_value());
  io("eps", options.eps());
}
void visit(auto& io, std::derived_from<optim::RMSpropOptions> auto& options) {
  io("lr", options.lr());
  io("alpha", options.alpha());
  io("eps", options.eps());
  io("weight_decay", options.weight_decay());
  io("momentum", options.momentum());
  io("centered", options.centered());
}
void visit(auto& io, std::derived_from<optim::SGDParamState> auto& state) {
  io("momentum_buffer", state.momentum_buffer());
}
template <typename T>
concept AdamLikeState = requires(T& state) {
  state.exp_avg_sq();
};
void visit(auto& io, AdamLikeState auto& state) {
  io("step", state.step());
  io("exp_avg", state.exp_avg());
  io("exp_avg_sq", state.exp_avg_sq());
  io("max_exp_avg_sq", state.max_exp_avg_sq());
}
void visit(auto& io, std::derived_from<optim::AdagradParamState> auto& state) {
  io("step", state.step());
  io("sum", state.sum());
}
void visit(auto& io, std::derived_from<optim::RMSpropParamState> auto& state) {
  io("step", state.step());
  io("square_avg", state.square_avg());
  io("momentum_buffer", state.momentum_buffer());
  io("grad_avg", state.grad_avg());
}

template <typename Options_, typename State_>
struct Kind {
  using Options = Options_;
  using State = State_;
};

template <typename Fn>
void with_kind(const optim::Optimizer& optimizer, Fn fn) {
  if (dynamic_cast<const optim::SGD*>(&optimizer)) return fn(Kind<optim::SGDOptions, optim::SGDParamState>());
  if (dynamic_cast<const optim::Adam*>(&optimizer)) return fn(Kind<optim::AdamOptions, optim::AdamParamState>());
  if (dynamic_cast<const optim::AdamW*>(&optimizer)) return fn(Kind<optim::AdamWOptions, optim::AdamWParamState>());
  if (dynamic_cast<const optim::Adagrad*>(&optimizer)) {
    return fn(Kind<optim::AdagradOptions, optim::AdagradParamState>());
  }
  if (dynamic_cast<const optim::RMSprop*>(&optimizer)) {
    return fn(Kind<optim::RMSpropOptions, optim::RMSpropParamState>());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "[cohort] only the state of SGD, Adam, AdamW, Adagrad and RMSprop can be saved by name\n"
                              "  hint: use torch::save(optimizer, path) for others");
}

struct WriteFields {
  StateDict& to;
  std::string prefix;

  void operator()(const char* key, double value) { to.insert(prefix + key, at::scalar_tensor(value, at::kDouble)); }
  void operator()(const char* key, int64_t value) { to.insert(prefix + key, at::scalar_tensor(value, at::kLong)); }
  void operator()(const char* key, bool value) { to.insert(prefix + key, at::scalar_tensor(value, at::kBool)); }
  void operator()(const char* key, const std::tuple<double, double>& value) {
    to.insert(prefix + key, at::tensor({std::get<0>(value), std::get<1>(value)}, at::kDouble));
  }
  void operator()(const char* key, const at::Tensor& value) {
    if (value.defined()) to.insert(prefix + key, value.detach());
  }
};

struct Problems {
  std::vector<std::string> missing;
  std::vector<std::string> wrong_sizes;
};

struct ReadFields {
  const StateDict& from;
  std::string prefix;
  const at::Tensor& parameter;
  std::set<std::string>& used;
  Problems& problems;

  const at::Tensor* find(const char* key, int64_t num_elements) {
    const at::Tensor* value = from.find(prefix + key);
    if (!value) {
      problems.missing.push_back(prefix + key);
    } else if (used.insert(prefix + key); value->numel() != num_elements) {
      problems.wrong_sizes.push_back(c10::str("size mismatch for ", prefix, key, ": needs ", num_elements,
                                              " element(s), but the checkpoint has shape ", value->sizes(), "."));
      return nullptr;
    }
    return value;
  }
  template <typename T>
  requires(std::is_arithmetic_v<T>) void operator()(const char* key, T& to) {
    if (const at::Tensor* value = find(key, 1)) to = value->item<T>();
  }
  void operator()(const char* key, std::tuple<double, double>& to) {
    if (const at::Tensor* value = find(key, 2)) to = {(*value)[0].item<double>(), (*value)[1].item<double>()};
  }
  // Absent where the optimizer's options do without it.
  void operator()(const char* key, at::Tensor& to) {
    const at::Tensor* value = from.find(prefix + key);
    if (!value) return;
    used.insert(prefix + key);
    if (value->sizes() != parameter.sizes()) {
      problems.wrong_sizes.push_back(c10::str("size mismatch for ", prefix, key, ": the checkpoint has shape ",
                                              value->sizes(), ", the parameter has shape ", parameter.sizes(), "."));
      return;
    }
    to = at::empty_like(parameter.detach());
    to.copy_(*value);
  }
};

class ParameterNames {
 public:
  explicit ParameterNames(const StateDict& parameters) {
    for (const auto& item : parameters) names_.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  const std::string& of(const at::Tensor& parameter, size_t group, size_t place) const {
    const auto found = names_.find(parameter.unsafeGetTensorImpl());
    TORCH_CHECK_VALUE(found != names_.end(), "[cohort] parameter ", place, " of the optimizer's group ", group,
                      " has no name among the ", names_.size(),
                      " given\n  hint: pass named_parameters() of the module the optimizer was constructed with");
    return found->second;
  }

 private:
  std::unordered_map<const void*, std::string> names_;
};

// "state.layer.weight." of "state.layer.weight.exp_avg", for each tensor.
std::unordered_set<std::string> prefixes_of(const StateDict& state) {
  std::unordered_set<std::string> prefixes;
  for (const auto& item : state) prefixes.insert(item.key().substr(0, item.key().rfind('.') + 1));
  return prefixes;
}

// Reads everything before it changes anything.
template <typename K>
class Loader {
 public:
  Loader(optim::Optimizer& optimizer, const StateDict& parameters, const StateDict& state)
      : optimizer_(optimizer), names_(parameters), state_(state), prefixes_(prefixes_of(state)) {}

  void load() {
    for (size_t group = 0; group < optimizer_.param_groups().size(); ++group) read_group(group);
    check();
    for (size_t group = 0; group < options_.size(); ++group) {
      if (options_[group]) optimizer_.param_groups()[group].set_options(std::move(options_[group]));
    }
    optimizer_.state().clear();
    for (auto& [parameter, state] : states_) optimizer_.state()[parameter] = std::move(state);
  }

 private:
  void read_group(size_t group) {
    const std::vector<at::Tensor>& parameters = optimizer_.param_groups()[group].params();
    options_.emplace_back();
    for (size_t place = 0; place < parameters.size(); ++place) {
      const std::string& name = names_.of(parameters[place], group, place);
      auto options = std::make_unique<typename K::Options>(
          static_cast<const typename K::Options&>(optimizer_.param_groups()[group].options()));
      ReadFields read{state_, "param_groups." + name + ".", parameters[place], used_, problems_};
      visit(read, *options);
      TORCH_CHECK_VALUE(!options_.back() || !problems_.missing.empty() ||
                            static_cast<typename K::Options&>(*options_.back()) == *options,
                        "[cohort] group ", group, " of the optimizer holds \"", name, "\" and \"",
                        names_.of(parameters[0], group, 0),
                        "\", which have different options in the checkpoint\n"
                        "  hint: construct the optimizer with the groups of the run that was saved");
      if (!options_.back()) options_.back() = std::move(options);
      read_state(name, parameters[place]);
    }
  }

  void read_state(const std::string& name, const at::Tensor& parameter) {
    const std::string prefix = "state." + name + ".";
    if (!prefixes_.contains(prefix)) return;
    auto state = std::make_unique<typename K::State>();
    ReadFields read{state_, prefix, parameter, used_, problems_};
    visit(read, *state);
    states_.emplace_back(parameter.unsafeGetTensorImpl(), std::move(state));
  }

  void check() const {
    std::vector<std::string> errors;
    std::vector<std::string> unexpected;
    for (const auto& item : state_) {
      if (!used_.contains(item.key())) unexpected.push_back(item.key());
    }
    if (!problems_.missing.empty())
      errors.push_back(c10::str("Missing key(s): ", base::quoted_list(problems_.missing), "."));
    if (!unexpected.empty()) errors.push_back(c10::str("Unexpected key(s): ", base::quoted_list(unexpected), "."));
    errors.insert(errors.end(), problems_.wrong_sizes.begin(), problems_.wrong_sizes.end());
    TORCH_CHECK(errors.empty(), "[cohort] load_optimizer_state_dict: the state does not fit the optimizer\n\t",
                c10::Join("\n\t", errors));
  }

  optim::Optimizer& optimizer_;
  const ParameterNames names_;
  const StateDict& state_;
  const std::unordered_set<std::string> prefixes_;
  std::vector<std::unique_ptr<optim::OptimizerOptions>> options_;
  std::vector<std::pair<void*, std::unique_ptr<optim::OptimizerParamState>>> states_;
  std::set<std::string> used_;
  Problems problems_;
};

}  // namespace

StateDict optimizer_state_dict(const optim::Optimizer& optimizer, const StateDict& parameters) {
  const ParameterNames names(parameters);
  StateDict result;
  with_kind(optimizer, [&]<typename K>(K) {
    for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
      const optim::OptimizerParamGroup& members = optimizer.param_groups()[group];
      for (size_t place = 0; place < members.params().size(); ++place) {
        const at::Tensor& parameter = members.params()[place];
        const std::string& name = names.of(parameter, group, place);
        const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
        if (state != optimizer.state().end()) {
          WriteFields write{result, "state." + name + "."};
          visit(write, static_cast<const typename K::State&>(*state->second));
        }
        WriteFields write{result, "param_groups." + name + "."};
        visit(write, static_cast<const typename K::Options&>(members.options()));
      }
    }
  });
  return result;
}

void load_optimizer_state_dict(optim::Optimizer& optimizer, const StateDict& parameters, const StateDict& state) {
  with_kind(optimizer, [&]<typename K>(K) { Loader<K>(optimizer, parameters, state).load(); });
}

}  // namespace cohort::checkpoint
