#include "cohort/parallel/fsdp/optimizer_fields.h"

#include <c10/util/Exception.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace cohort::fsdp {
namespace {

namespace optim = torch::optim;

// One list of fields per kind serves both directions.
void visit_fields(auto io, optim::SGDParamState& state) { io(state.momentum_buffer()); }
void visit_fields(auto io, optim::AdagradParamState& state) {
  io(state.step());
  io(state.sum());
}
void visit_fields(auto io, optim::RMSpropParamState& state) {
  io(state.step());
  io(state.square_avg());
  io(state.momentum_buffer());
  io(state.grad_avg());
}
template <class State>
requires requires(State& state) { state.exp_avg_sq(); }
void visit_fields(auto io, State& state) {
  io(state.step());
  io(state.exp_avg());
  io(state.exp_avg_sq());
  io(state.max_exp_avg_sq());
}

struct TakeFields {
  OptimizerFields& to;
  size_t next = 0;
  void operator()(int64_t& step) { to.step = step; }
  void operator()(at::Tensor& tensor) { to.tensors.at(next++) = tensor; }
};

struct GiveFields {
  OptimizerFields& from;
  size_t next = 0;
  void operator()(int64_t& step) { step = from.step; }
  void operator()(at::Tensor& tensor) { tensor = std::move(from.tensors.at(next++)); }
};

// False: none of the kinds. `fn` is called with the type of the kind's state.
template <class Fn>
bool with_state_type(const optim::Optimizer& optimizer, Fn fn) {
  const auto is = [&]<class Kind, class State>(std::type_identity<Kind>, std::type_identity<State> state) {
    if (!dynamic_cast<const Kind*>(&optimizer)) return false;
    fn(state);
    return true;
  };
  return is(std::type_identity<optim::SGD>(), std::type_identity<optim::SGDParamState>()) ||
         is(std::type_identity<optim::Adam>(), std::type_identity<optim::AdamParamState>()) ||
         is(std::type_identity<optim::AdamW>(), std::type_identity<optim::AdamWParamState>()) ||
         is(std::type_identity<optim::Adagrad>(), std::type_identity<optim::AdagradParamState>()) ||
         is(std::type_identity<optim::RMSprop>(), std::type_identity<optim::RMSpropParamState>());
}

}  // namespace

bool is_known_kind(const optim::Optimizer& optimizer) {
  return with_state_type(optimizer, [](auto) {});
}

void check_kind_of(const optim::Optimizer& optimizer) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_known_kind(optimizer),
      "only the state of SGD, Adam, AdamW, Adagrad and RMSprop can be put together from shards");
}

std::optional<OptimizerFields> fields_of(const optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return std::nullopt;
  OptimizerFields fields;
  with_state_type(optimizer, [&]<class State>(std::type_identity<State>) {
    visit_fields(TakeFields{fields}, static_cast<State&>(*found->second));
  });
  return fields;
}

void set_fields(optim::Optimizer& optimizer, const at::Tensor& parameter, OptimizerFields fields) {
  with_state_type(optimizer, [&]<class State>(std::type_identity<State>) {
    auto state = std::make_unique<State>();
    visit_fields(GiveFields{fields}, *state);
    optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  });
}

}  // namespace cohort::fsdp
