/// The tensors among the arguments of forward, taken out and put back: what a pass makes of its inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/parallel/module/tensor_tree.h"

namespace cohort::fsdp {

/// Visits tensors in the order in which they lie; as a place of parallel::move_tensors.
struct TakeTensors {
  std::vector<at::Tensor>* found;
};
inline at::Tensor moved(const at::Tensor& tensor, const TakeTensors& place) {
  place.found->push_back(tensor);
  return tensor;
}

struct PutTensors {
  const std::vector<at::Tensor>* tensors;
  size_t* next;
};
inline at::Tensor moved(const at::Tensor&, const PutTensors& place) { return (*place.tensors)[(*place.next)++]; }

/// Types that tensors can be exchanged in. Others are passed on as they are, by reference if they come so.
template <class T>
constexpr bool kMayHoldTensors =
    !parallel::HasOwnTensors<T> && (std::is_same_v<T, at::Tensor> || parallel::IsOptional<T>::value ||
                                    parallel::MapLike<T> || parallel::RangeLike<T> || parallel::TupleLike<T>);

template <class Argument>
using HeldArgument = std::conditional_t<kMayHoldTensors<std::decay_t<Argument>>, std::decay_t<Argument>, Argument&&>;

/// Calls `function` with `arguments`, whose tensors `exchange` may replace: it takes and gives a std::vector<at::Tensor>.
template <class Function, class Exchange, class... Arguments>
decltype(auto) with_exchanged_tensors(Function&& function, Exchange&& exchange, Arguments&&... arguments) {
  std::tuple<HeldArgument<Arguments>...> held(std::forward<Arguments>(arguments)...);
  const auto visit = [](auto& argument, const auto& place) {
    using T = std::remove_cvref_t<decltype(argument)>;
    if constexpr (kMayHoldTensors<T>) argument = parallel::move_tensors(std::move(argument), place);
  };
  std::vector<at::Tensor> tensors;
  std::apply([&](auto&... each) { (visit(each, TakeTensors{&tensors}), ...); }, held);
  tensors = exchange(std::move(tensors));
  size_t next = 0;
  std::apply([&](auto&... each) { (visit(each, PutTensors{&tensors, &next}), ...); }, held);
  return std::apply([&](auto&... each) -> decltype(auto) { return function(static_cast<Arguments&&>(each)...); }, held);
}

}  // namespace cohort::fsdp
