#include "cohort/dtensor/dispatch/rule_table.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/comm/overrides/override.h"
#include "cohort/dtensor/dispatch/sharding_cache.h"

namespace cohort::dtensor {
namespace {

constexpr const char* kFeature = "DTensor";

// Lives as long as the process, like the dispatcher's tables.
struct Table {
  /// Operations for which we have registered a kernel. Without a rule, the kernel throws.
  std::unordered_map<std::string, std::unique_ptr<std::optional<Rule>>> rules;
  std::vector<std::string> missing;
};

Table& table() {
  static auto* const instance = new Table;
  return *instance;
}

// Describes the first argument that is a DTensor, for the message.
std::string what_was_given(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  const auto describe = [](size_t index, const at::Tensor& tensor) {
    return c10::str("argument ", index, " has shape ", tensor.sizes(), " and placements ",
                    to_string(dtensor_data(tensor).placements));
  };
  for (size_t i = 0; i < count; ++i) {
    const auto& value = stack[stack.size() - count + i];
    if (value.isTensor() && is_dtensor(value.toTensor())) return describe(i, value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (is_dtensor(tensor)) return describe(i, tensor);
    }
  }
  return "no argument is a DTensor";
}

void refuse(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto name = name_of(op);
  TORCH_CHECK_NOT_IMPLEMENTED(false, "[cohort] DTensor: ", name,
                              " has no sharding rule, so it cannot run on distributed tensors (",
                              what_was_given(op, *stack),
                              ")\n  hint: give it DTensor(x).full_tensor(), which all ranks must call, or "
                              "DTensor(x).to_local(), this rank's shard; or add a rule with "
                              "cohort::register_sharding_rule(\"",
                              name, "\", ...)");
}

struct RuleKernel final : c10::OperatorKernel {
  explicit RuleKernel(const std::optional<Rule>& rule) : rule(rule) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (rule) {
      run_by_rule(*rule, op, *stack);
    } else {
      refuse(op, stack);
    }
  }
  const std::optional<Rule>& rule;
};

std::optional<c10::OperatorHandle> find_operation(const std::string& name) {
  const auto dot = name.find('.');
  const c10::OperatorName parsed(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchema(parsed);
}

// Registers the kernel only once per operation, because LibTorch warns of a second one.
std::optional<Rule>& slot_of(const std::string& name) {
  auto& slot = table().rules[name];
  if (!slot) {
    slot = std::make_unique<std::optional<Rule>>();
    comm::override_kernel(kFeature, name, kKey,
                          torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RuleKernel>(*slot)));
  }
  return *slot;
}

// LibTorch would call its own kernels for all backends before our fallback, and some of them make tensors or read memory. The
// operations named here are known to call other operations, tensor by tensor.
bool may_decompose(const std::string& name) { return name.starts_with("aten::_foreach_"); }

void refuse_kernels_for_all_backends() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& operation : dispatcher.getAllOpNames()) {
    const auto name = toString(operation);
    if (!name.starts_with("aten::") || has_rule(name) || may_decompose(name)) continue;
    const auto op = dispatcher.findSchema(operation);
    if (!op) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
      continue;
    }
    slot_of(name);
  }
}

}  // namespace

void install(AddRules add_rules) {
  static std::once_flag once;
  std::call_once(once, [&] {  // if this throws, the next call tries again
    comm::take_key(kFeature, kKey);
    add_rules();
    refuse_kernels_for_all_backends();
    comm::override_others(kKey, torch::CppFunction::makeFromBoxedFunction<&refuse>());
  });
}

void set_rule(const std::string& name, Rule rule) {
  TORCH_CHECK_VALUE(find_operation(name), "[cohort] register_sharding_rule: LibTorch knows no operation \"", name,
                    "\"\n  hint: give the schema's name, with the overload after a dot: \"aten::add.Tensor\"");
  slot_of(name) = std::move(rule);
  clear_sharding_caches();
}

void add_rule(const std::string& name, const Rule& rule) {
  if (find_operation(name)) {
    slot_of(name) = rule;
  } else {
    table().missing.push_back(name);
  }
}

void add_rule_and_in_place(const std::string& name, const Rule& rule) {
  add_rule(name, rule);
  const auto dot = name.find('.');
  const auto in_place = name.substr(0, dot) + "_" + (dot == std::string::npos ? "" : name.substr(dot));
  if (find_operation(in_place)) slot_of(in_place) = rule;
}

std::vector<std::string> missing_operations() { return table().missing; }

bool has_rule(const std::string& name) {
  const auto found = table().rules.find(name);
  return found != table().rules.end() && found->second->has_value();
}

}  // namespace cohort::dtensor
