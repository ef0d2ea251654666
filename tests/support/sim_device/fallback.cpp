#include "tests/support/sim_device/fallback.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "tests/support/sim_device/arguments.h"
#include "tests/support/sim_device/dispatch_key.h"
#include "tests/support/sim_device/memory.h"
#include "tests/support/sim_device/sim_device.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

std::mutex synchronous_mutex;
std::set<std::string> synchronous;

// One call of an operator.
struct Call {
  const c10::OperatorHandle& op;
  Values given;
  Values on_host;
  c10::Device device;
  Queue& queue;

  const c10::FunctionSchema& schema() const { return op.schema(); }
  // An `out` argument without elements, which the operator resizes.
  bool is_empty_out(size_t argument) const {
    return schema().arguments()[argument].is_out() && given[argument].isTensor() &&
           given[argument].toTensor().numel() == 0;
  }
};

bool is_view(const c10::Argument& result) { return result.alias_info() && !result.alias_info()->isWrite(); }
bool is_written(const c10::Argument& result) { return result.alias_info() && result.alias_info()->isWrite(); }

void run_on_host(const c10::OperatorHandle& op, Values& values) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &values);
}

// The results' sizes, by the operator's Meta kernel; nothing if it has none, as those whose sizes depend on the data.
std::optional<Values> make_results(const Call& call) {
  auto values = meta_arguments(call.schema(), call.given);
  try {
    call.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &values);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
  for (auto& value : values) {
    if (!value.isTensor() && !value.isTensorList()) return std::nullopt;
    value = convert_tensors(value, [&](const at::Tensor& meta, bool) {
      if (!meta.defined()) return meta;
      return at::empty_strided(meta.sizes(), meta.strides(), at::dtype(meta.scalar_type()).device(call.device));
    });
  }
  return values;
}

void copy_result(const at::Tensor& from, const at::Tensor& to) {
  TORCH_INTERNAL_ASSERT(from.defined() == to.defined() && (!from.defined() || from.sizes() == to.sizes()));
  if (from.defined() && from.numel() > 0) to.copy_(from);
}

void copy_results(const Values& results, const Values& destinations) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (destinations[i].isTensor()) copy_result(results[i].toTensor(), destinations[i].toTensor());
    if (!destinations[i].isTensorList()) continue;
    const auto from = results[i].toTensorVector();
    const auto to = destinations[i].toTensorVector();
    for (size_t j = 0; j < from.size(); ++j) copy_result(from[j], to[j]);
  }
}

// An argument that the operator writes and returns takes the place of the result.
void return_written_arguments(const Call& call, Values& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const auto& result = call.schema().returns()[i];
    if (!is_written(result)) continue;
    for (size_t j = 0; j < call.given.size(); ++j) {
      const auto* const alias = call.schema().arguments()[j].alias_info();
      if (alias && *alias == *result.alias_info()) results[i] = call.given[j];
    }
  }
}

void fill_empty_outs(const Call& call, const Values& arguments) {
  for (size_t i = 0; i < call.given.size(); ++i) {
    if (!call.is_empty_out(i)) continue;
    const auto& out = call.given[i].toTensor();
    out.resize_(arguments[i].toTensor().sizes());
    call.queue.wait_for_simulation();  // its block may have been filled with 0xFF just now
    copy_result(arguments[i].toTensor(), host_view(out));
  }
}

at::Tensor move_to_device(const Call& call, const at::Tensor& result) {
  if (!result.defined()) return result;
  auto moved = at::empty_strided(result.sizes(), result.strides(), result.options().device(call.device));
  call.queue.wait_for_simulation();  // as above
  if (result.numel() > 0) host_view(moved).copy_(result);
  return moved;
}

// Where the results' sizes are known only when the kernel has run.
Values run_at_once(Call& call) {
  {
    const std::lock_guard lock(synchronous_mutex);
    synchronous.insert(c10::toString(call.schema().operator_name()));
  }
  call.queue.wait_for_simulation();
  for (size_t i = 0; i < call.given.size(); ++i) {
    if (call.is_empty_out(i)) call.on_host[i] = at::empty({0}, call.given[i].toTensor().scalar_type());
  }
  auto results = call.on_host;
  run_on_host(call.op, results);
  fill_empty_outs(call, call.on_host);
  for (size_t i = 0; i < results.size(); ++i) {
    if (is_written(call.schema().returns()[i])) continue;
    results[i] =
        convert_tensors(results[i], [&](const at::Tensor& tensor, bool) { return move_to_device(call, tensor); });
  }
  return results;
}

Values run(Call& call) {
  const auto& returns = call.schema().returns();
  for (size_t i = 0; i < call.given.size(); ++i) {
    if (call.is_empty_out(i)) return run_at_once(call);
  }
  if (std::all_of(returns.begin(), returns.end(), is_written)) {
    call.queue.push([op = call.op, values = call.on_host]() mutable { run_on_host(op, values); });
    return Values(returns.size());
  }
  auto results = make_results(call);
  if (!results) return run_at_once(call);
  return_written_arguments(call, *results);
  Values destinations;
  for (const auto& value : *results) destinations.push_back(convert_tensors(value, as_kernel_argument));
  call.queue.push([op = call.op, values = call.on_host, destinations]() mutable {
    run_on_host(op, values);
    copy_results(values, destinations);
  });
  return *results;
}

// What the CPU's kernel does without, and CUDA's does not: what forward has saved, and weights where the input has no gradient.
void check_as_cuda(const c10::FunctionSchema& schema, const Values& given) {
  if (schema.name() != "aten::native_batch_norm_backward") return;
  const auto is_given = [&](size_t i) { return given[i].isTensor() && given[i].toTensor().defined(); };
  const bool has_input_gradient = given[9].toBoolList().get(0);
  TORCH_CHECK(is_given(5) && is_given(6) && (has_input_gradient || is_given(2)),
              "native_batch_norm_backward needs save_mean, save_invstd and, without a gradient of the input, weight");
}

}  // namespace

void run_cpu_kernel(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack) {
  const auto& schema = op.schema();
  const auto count = static_cast<std::ptrdiff_t>(schema.arguments().size());
  const Values given(stack->end() - count, stack->end());
  stack->erase(stack->end() - count, stack->end());
  const auto device = device_of_call(given);
  TORCH_CHECK(device && device->type() == type(), schema.operator_name(), " has no tensor of a simulated device");
  TORCH_CHECK(std::none_of(schema.returns().begin(), schema.returns().end(), is_view), schema.operator_name(),
              " makes views and has no kernel for simulated devices");
  check_as_cuda(schema, given);
  const c10::DeviceGuard guard(*device);
  Call call{op, given, kernel_arguments(schema, given), *device, current_queue(current_device())};
  auto results = run(call);
  return_written_arguments(call, results);
  stack->insert(stack->end(), results.begin(), results.end());
}

void register_fallback() {
  static auto* const any = new torch::Library(torch::Library::IMPL, "_", dispatch_key(), __FILE__, __LINE__);
  any->fallback(torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel>());
  static auto* const aten = new torch::Library(torch::Library::IMPL, "aten", dispatch_key(), __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!name.name.starts_with("aten::") || !op || !op->hasSchema()) continue;
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    if (op->hasKernelForDispatchKey(dispatch_key())) continue;
    const auto& returns = op->schema().returns();
    if (std::any_of(returns.begin(), returns.end(), is_view)) continue;
    aten->impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel>());
  }
}

std::set<std::string> synchronous_operators() {
  const std::lock_guard lock(synchronous_mutex);
  return synchronous;
}

}  // namespace cohort::sim
