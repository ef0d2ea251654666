#include "cohort/parallel/fsdp/optimizer_fields.h"

#include <c10/util/Exception.h>

#include <bit>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "cohort/parallel/optim/optimizer_kind.h"

namespace cohort::fsdp {
namespace {

using optim::Fields;
using optim::OptimizerKind;

// Calls `number` with each number's place, and `tensor` with each tensor's. Returns false for fields that cannot be sharded.
template <class OnNumber, class OnTensor>
bool visit_fields(const Fields& fields, OnNumber number, OnTensor tensor) {
  bool is_known = true;
  for (const auto& field : fields) {
    std::visit(
        [&](auto place) {
          using Place = decltype(place);
          if constexpr (std::is_same_v<Place, optim::StepCount>) {
            number(*place.value);
          } else if constexpr (std::is_same_v<Place, double*> || std::is_same_v<Place, int64_t*> ||
                               std::is_same_v<Place, bool*>) {
            number(*place);
          } else if constexpr (std::is_same_v<Place, at::Tensor*>) {
            tensor(*place);
          } else {
            is_known = false;
          }
        },
        field.place);
  }
  return is_known;
}

int64_t bits_of(double number) { return std::bit_cast<int64_t>(number); }
int64_t bits_of(int64_t number) { return number; }
int64_t bits_of(bool number) { return number ? 1 : 0; }
void set_bits(double& number, int64_t bits) { number = std::bit_cast<double>(bits); }
void set_bits(int64_t& number, int64_t bits) { number = bits; }
void set_bits(bool& number, int64_t bits) { number = bits != 0; }

}  // namespace

bool is_divisible(const torch::optim::Optimizer& optimizer) {
  const OptimizerKind* const kind = optim::find_optimizer_kind(optimizer);
  if (!kind) return false;
  return visit_fields(
      kind->state(*kind->make_state()), [](auto&) {}, [](at::Tensor&) {});
}

void check_divisible(const torch::optim::Optimizer& optimizer) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_divisible(optimizer),
                              "[cohort] only the state of SGD, Adam, AdamW, Adagrad and RMSprop, and of kinds that "
                              "register_optimizer_kind has been told, can be gathered from shards");
}

OptimizerFields blank_fields(const torch::optim::Optimizer& optimizer) {
  const OptimizerKind& kind = *optim::find_optimizer_kind(optimizer);
  OptimizerFields fields;
  const auto state = kind.make_state();
  visit_fields(
      kind.state(*state), [&](auto&) { fields.numbers.push_back(0); },
      [&](const at::Tensor&) { fields.tensors.emplace_back(); });
  return fields;
}

std::optional<OptimizerFields> fields_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return std::nullopt;
  OptimizerFields fields;
  visit_fields(
      optim::find_optimizer_kind(optimizer)->state(*found->second),
      [&](auto& number) { fields.numbers.push_back(bits_of(number)); },
      [&](const at::Tensor& tensor) { fields.tensors.push_back(tensor); });
  return fields;
}

void set_fields(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, OptimizerFields fields) {
  const OptimizerKind& kind = *optim::find_optimizer_kind(optimizer);
  auto state = kind.make_state();
  size_t number = 0;
  size_t tensor = 0;
  visit_fields(
      kind.state(*state), [&](auto& to) { set_bits(to, fields.numbers.at(number++)); },
      [&](at::Tensor& to) { to = std::move(fields.tensors.at(tensor++)); });
  optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
}

}  // namespace cohort::fsdp
