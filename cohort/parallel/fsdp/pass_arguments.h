/// Takes the tensors out of the arguments of forward and puts them back, so that a pass can replace its inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/parallel/module/tensor_tree.h"

namespace cohort::fsdp {

/// Visits tensors in the order in which they lie; used as a place of parallel::move_tensors.
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

/// Types that own tensors which can be exchanged: a tensor, and optionals, containers, maps, arrays, pairs and tuples of such
/// types. Other arguments are passed on unchanged, by reference if they come by reference.
template <class T>
struct HoldsTensors : std::false_type {};
template <>
struct HoldsTensors<at::Tensor> : std::true_type {};
template <class T>
struct HoldsTensors<std::optional<T>> : HoldsTensors<T> {};
template <class T>
struct HoldsTensors<std::vector<T>> : HoldsTensors<T> {};
template <class T>
requires(parallel::MapLike<T>&& requires { typename T::allocator_type; }) struct HoldsTensors<T>
    : HoldsTensors<typename T::mapped_type> {
};
template <class T, size_t kSize>
struct HoldsTensors<std::array<T, kSize>> : HoldsTensors<T> {};
template <class First, class Second>
struct HoldsTensors<std::pair<First, Second>> : std::disjunction<HoldsTensors<First>, HoldsTensors<Second>> {};
template <class... Each>
struct HoldsTensors<std::tuple<Each...>> : std::disjunction<HoldsTensors<Each>...> {};

template <class Argument>
using HeldArgument =
    std::conditional_t<HoldsTensors<std::decay_t<Argument>>::value, std::decay_t<Argument>, Argument&&>;

inline bool are_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& one, const at::Tensor& other) { return one.is_same(other); });
}

template <class T>
std::vector<at::Tensor> tensors_in(T& value) {
  std::vector<at::Tensor> found;
  value = parallel::move_tensors(std::move(value), TakeTensors{&found});
  return found;
}

/// Gives the caller the changes that `function` has made to its own copy of an argument, if the argument can be written.
template <class Argument, class Held>
void give_back(Argument&& argument, Held& held, const std::vector<at::Tensor>& exchanged) {
  using T = std::remove_reference_t<Argument>;
  if constexpr (std::is_lvalue_reference_v<Argument> && !std::is_const_v<T> && HoldsTensors<T>::value) {
    if (!are_same(tensors_in(held), exchanged)) argument = std::move(held);
  }
}

/// Calls `function` with `arguments`, whose tensors `exchange` may replace: it takes and returns a std::vector<at::Tensor>.
template <class Function, class Exchange, class... Arguments>
auto with_exchanged_tensors(Function&& function, Exchange&& exchange, Arguments&&... arguments) {
  std::tuple<HeldArgument<Arguments>...> held(std::forward<Arguments>(arguments)...);
  const auto visit = [](auto& argument, const auto& place) {
    using T = std::remove_cvref_t<decltype(argument)>;
    if constexpr (HoldsTensors<T>::value) argument = parallel::move_tensors(std::move(argument), place);
  };
  std::vector<at::Tensor> tensors;
  std::apply([&](auto&... each) { (visit(each, TakeTensors{&tensors}), ...); }, held);
  tensors = exchange(std::move(tensors));
  size_t next = 0;
  std::apply([&](auto&... each) { (visit(each, PutTensors{&tensors, &next}), ...); }, held);
  std::array<std::vector<at::Tensor>, sizeof...(Arguments)> exchanged;
  const auto call = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    const auto note = [&]<size_t kPlace>(std::integral_constant<size_t, kPlace>) {
      using T = std::remove_cvref_t<decltype(std::get<kPlace>(held))>;
      if constexpr (HoldsTensors<T>::value) exchanged[kPlace] = tensors_in(std::get<kPlace>(held));
    };
    (note(std::integral_constant<size_t, kIndex>()), ...);
    const auto run = [&] { return function(static_cast<Arguments&&>(std::get<kIndex>(held))...); };
    if constexpr (std::is_void_v<decltype(run())>) {
      run();
      (give_back(std::forward<Arguments>(arguments), std::get<kIndex>(held), exchanged[kIndex]), ...);
    } else {
      auto result = run();
      (give_back(std::forward<Arguments>(arguments), std::get<kIndex>(held), exchanged[kIndex]), ...);
      return result;
    }
  };
  return call(std::index_sequence_for<Arguments...>());
}

}  // namespace cohort::fsdp
