#include "cohort/checkpoint/optimizer/optimizer_state.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/checkpoint/optimizer/optimizer_values.h"

namespace cohort::checkpoint {
namespace {

using optim::Fields;
using optim::OptimizerKind;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;

// Writes only tensors, so that every file format can hold them. Leaves out options that only Python has.
struct WriteField {
  StateDict& to;
  const std::string name;

  void put(at::Tensor value) const { to.insert(name, std::move(value)); }
  void operator()(double* value) const { put(at::scalar_tensor(*value, at::kDouble)); }
  void operator()(int64_t* value) const { put(at::scalar_tensor(*value, at::kLong)); }
  void operator()(bool* value) const { put(at::scalar_tensor(*value, at::kBool)); }
  void operator()(const optim::StepCount& count) const { (*this)(count.value); }
  void operator()(std::tuple<double, double>* value) const {
    put(at::tensor({std::get<0>(*value), std::get<1>(*value)}, at::kDouble));
  }
  void operator()(at::Tensor* value) const {
    if (value->defined()) put(value->detach());
  }
  template <class Other>
  void operator()(const Other&) const {}
};

struct Problems {
  std::vector<std::string> missing;
  std::vector<std::string> wrong_sizes;
};

struct ReadField {
  const StateDict& from;
  const std::string name;
  const at::Tensor& parameter;
  std::set<std::string>& used;
  Problems& problems;

  const at::Tensor* find(int64_t num_elements) const {
    const at::Tensor* value = from.find(name);
    if (!value) {
      problems.missing.push_back(name);
    } else if (used.insert(name); value->numel() != num_elements) {
      problems.wrong_sizes.push_back(c10::str("size mismatch for ", name, ": needs ", num_elements,
                                              " element(s), but the checkpoint has shape ", value->sizes(), "."));
      return nullptr;
    }
    return value;
  }
  template <typename T>
  requires(std::is_arithmetic_v<T>) void operator()(T* to) const {
    if (const at::Tensor* value = find(1)) *to = value->item<T>();
  }
  void operator()(const optim::StepCount& count) const { (*this)(count.value); }
  void operator()(std::tuple<double, double>* to) const {
    if (const at::Tensor* value = find(2)) *to = {(*value)[0].item<double>(), (*value)[1].item<double>()};
  }
  // The tensor may be absent if the optimizer's options do not need it.
  void operator()(at::Tensor* to) const {
    const at::Tensor* value = from.find(name);
    if (!value) return;
    used.insert(name);
    if (value->sizes() != parameter.sizes()) {
      problems.wrong_sizes.push_back(c10::str("size mismatch for ", name, ": the checkpoint has shape ", value->sizes(),
                                              ", the parameter has shape ", parameter.sizes(), "."));
      return;
    }
    *to = at::empty_like(parameter.detach());
    to->copy_(*value);
  }
  template <class Other>
  void operator()(const Other&) const {}
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

// Refuses kinds with lists, and with tensors of other sizes than the parameter's: they would need more than a name.
const OptimizerKind& kind_by_name(const Optimizer& optimizer) {
  const OptimizerKind& kind = detail::kind_of(optimizer);
  const auto is_free = [](const optim::Field& field) {
    return std::holds_alternative<optim::FreeTensor>(field.place) ||
           std::holds_alternative<std::deque<at::Tensor>*>(field.place);
  };
  const auto fields = kind.state(*kind.make_state());
  TORCH_CHECK_NOT_IMPLEMENTED(std::none_of(fields.begin(), fields.end(), is_free), "[cohort] the state of ", kind.name,
                              " does not belong to single parameters, so it cannot be saved by their names\n"
                              "  hint: save optimizer_state_dict(optimizer), which is Python's layout");
  return kind;
}

// Returns "state.layer.weight." for "state.layer.weight.exp_avg", for each tensor.
std::unordered_set<std::string> prefixes_of(const StateDict& state) {
  std::unordered_set<std::string> prefixes;
  for (const auto& item : state) prefixes.insert(item.key().substr(0, item.key().rfind('.') + 1));
  return prefixes;
}

// Reads everything before it changes anything.
class Loader {
 public:
  Loader(Optimizer& optimizer, const StateDict& parameters, const StateDict& state)
      : optimizer_(optimizer),
        kind_(kind_by_name(optimizer)),
        names_(parameters),
        state_(state),
        prefixes_(prefixes_of(state)) {}

  void load() {
    for (size_t group = 0; group < optimizer_.param_groups().size(); ++group) read_group(group);
    check();
    loaded_.commit(optimizer_);
  }

 private:
  void read(const Fields& fields, const std::string& prefix, const at::Tensor& parameter) {
    for (const auto& field : fields) {
      std::visit(ReadField{state_, prefix + field.key, parameter, used_, problems_}, field.place);
    }
  }

  std::string text_of_options(OptimizerOptions& options) const {
    std::string text;
    for (const auto& field : kind_.options(options)) text += detail::text_of(*detail::value_of(field)) + " ";
    return text;
  }

  void read_group(size_t group) {
    const std::vector<at::Tensor>& parameters = optimizer_.param_groups()[group].params();
    loaded_.options.emplace_back();
    auto& of_group = loaded_.options.back();
    for (size_t place = 0; place < parameters.size(); ++place) {
      const std::string& name = names_.of(parameters[place], group, place);
      auto options = optimizer_.param_groups()[group].options().clone();
      read(kind_.options(*options), "param_groups." + name + ".", parameters[place]);
      TORCH_CHECK_VALUE(
          !of_group || !problems_.missing.empty() || text_of_options(*of_group) == text_of_options(*options),
          "[cohort] group ", group, " of the optimizer holds \"", name, "\" and \"", names_.of(parameters[0], group, 0),
          "\", which have different options in the checkpoint\n"
          "  hint: construct the optimizer with the parameter groups of the saved run");
      if (!of_group) of_group = std::move(options);
      read_state(name, parameters[place]);
    }
  }

  void read_state(const std::string& name, const at::Tensor& parameter) {
    const std::string prefix = "state." + name + ".";
    if (!prefixes_.contains(prefix)) return;
    auto state = kind_.make_state();
    read(kind_.state(*state), prefix, parameter);
    loaded_.states.emplace_back(parameter, std::move(state));
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

  Optimizer& optimizer_;
  const OptimizerKind& kind_;
  const ParameterNames names_;
  const StateDict& state_;
  const std::unordered_set<std::string> prefixes_;
  detail::LoadedOptimizer loaded_;
  std::set<std::string> used_;
  Problems problems_;
};

}  // namespace

StateDict optimizer_state_dict(const Optimizer& given, const StateDict& parameters) {
  const Optimizer& optimizer = detail::full_optimizer_of(given);
  const OptimizerKind& kind = kind_by_name(optimizer);
  const ParameterNames names(parameters);
  StateDict result;
  const auto write = [&](const Fields& fields, const std::string& prefix) {
    for (const auto& field : fields) std::visit(WriteField{result, prefix + field.key}, field.place);
  };
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& members = optimizer.param_groups()[group];
    for (size_t place = 0; place < members.params().size(); ++place) {
      const at::Tensor& parameter = members.params()[place];
      const std::string& name = names.of(parameter, group, place);
      const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (state != optimizer.state().end()) write(kind.state(*state->second), "state." + name + ".");
      write(kind.options(const_cast<OptimizerOptions&>(members.options())), "param_groups." + name + ".");
    }
  }
  return result;
}

void load_optimizer_state_dict(Optimizer& optimizer, const StateDict& parameters, const StateDict& state) {
  detail::load_full(optimizer, [&](Optimizer& full) { Loader(full, parameters, state).load(); });
}

}  // namespace cohort::checkpoint
