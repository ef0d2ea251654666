/// Visits the tensors of a batch of any type that collate() can return.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "cohort/data/loader/collate.h"

namespace cohort::data::detail {

template <typename T>
struct IsSequence : std::false_type {};
template <typename T>
struct IsSequence<std::vector<T>> : std::true_type {};
template <typename T, size_t N>
struct IsSequence<std::array<T, N>> : std::true_type {};

/// Calls `fn` with each tensor of `value`, which it may replace. Ignores types in which it cannot find tensors.
template <typename T, typename Fn>
void for_each_tensor(T& value, Fn&& fn) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    fn(value);
  } else if constexpr (IsSequence<T>::value) {
    if constexpr (!std::is_arithmetic_v<typename T::value_type>) {
      for (auto& each : value) for_each_tensor(each, fn);
    }
  } else if constexpr (requires { std::tuple_size<T>::value; }) {  // pairs, too
    std::apply([&](auto&... each) { (for_each_tensor(each, fn), ...); }, value);
  } else if constexpr (requires { typename T::mapped_type; }) {
    for (auto& [key, each] : value) for_each_tensor(each, fn);
  } else if constexpr (DataAndTarget<T>) {
    for_each_tensor(value.data, fn);
    for_each_tensor(value.target, fn);
  } else if constexpr (DataOnly<T>) {
    for_each_tensor(value.data, fn);
  } else if constexpr (PlainStruct<T>) {
    std::apply([&](auto&... each) { (for_each_tensor(each, fn), ...); }, fields_of(value));
  }
}

}  // namespace cohort::data::detail
