/// Finds tensors inside the arguments and results of forward: in lists, maps, arrays, optionals, pairs, tuples and IValues.
///
/// Values of other types are passed through unchanged. A type of your own takes part if there is a function
/// `std::vector<at::Tensor> cohort_tensors(const T&)` (found by argument-dependent lookup).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::parallel {

template <class T>
concept HasOwnTensors = requires(const T& value) {
  { cohort_tensors(value) } -> std::convertible_to<std::vector<at::Tensor>>;
};

template <class T>
concept MapLike = requires {
  typename T::mapped_type;
};

template <class T>
concept RangeLike = requires(const T& value) {
  value.begin();
  value.end();
  typename T::value_type;
}
&&!std::is_convertible_v<T, std::string_view>;

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
}
&&!RangeLike<T>;

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

/// Appends the tensors in `value` that require a gradient.
template <class T>
void collect_tensors(const T& value, std::vector<at::Tensor>& found) {
  if constexpr (std::is_convertible_v<const T&, const at::Tensor&>) {
    const at::Tensor& tensor = value;
    if (tensor.defined() && tensor.requires_grad()) found.push_back(tensor);
  } else if constexpr (HasOwnTensors<T>) {
    for (const at::Tensor& tensor : cohort_tensors(value)) collect_tensors(tensor, found);
  } else if constexpr (std::is_same_v<T, c10::IValue>) {
    value.visit([&](const c10::IValue& part) {
      if (part.isTensor()) collect_tensors(part.toTensor(), found);
      return false;
    });
  } else if constexpr (IsOptional<T>::value) {
    if (value) collect_tensors(*value, found);
  } else if constexpr (MapLike<T>) {
    for (const auto& entry : value) collect_tensors(entry.second, found);
  } else if constexpr (RangeLike<T>) {
    for (const auto& element : value) collect_tensors(element, found);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](const auto&... parts) { (collect_tensors(parts, found), ...); }, value);
  }
}

inline at::Tensor moved(const at::Tensor& tensor, const c10::Device& device) {
  return tensor.to(device, /*non_blocking=*/true);
}
inline at::Tensor moved(const at::Tensor& tensor, const c10::ScalarType& dtype) {
  return tensor.is_floating_point() ? tensor.to(dtype) : tensor;
}

/// Returns `value` with its tensors moved to `place`, a c10::Device, or its floating-point tensors converted to it, a
/// c10::ScalarType.
template <class T, class Place>
T move_tensors(T value, const Place& place) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return value.defined() ? moved(value, place) : value;
  } else if constexpr (IsOptional<T>::value) {
    if (value) *value = move_tensors(std::move(*value), place);
  } else if constexpr (MapLike<T>) {
    for (auto& entry : value) entry.second = move_tensors(std::move(entry.second), place);
  } else if constexpr (RangeLike<T>) {
    if constexpr (requires { *value.begin() = std::declval<typename T::value_type>(); } &&
                  !std::is_same_v<typename T::value_type, bool>) {
      for (auto& element : value) element = move_tensors(std::move(element), place);
    }
  } else if constexpr (TupleLike<T>) {
    std::apply([&](auto&... parts) { ((parts = move_tensors(std::move(parts), place)), ...); }, value);
  }
  return value;
}

}  // namespace cohort::parallel
