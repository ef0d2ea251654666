/// scatter and gather: split values into one part per device, and join them again. Semantics, checks and texts of PyTorch's
/// torch/nn/parallel/scatter_gather.py and torch/csrc/cuda/comm.cpp.
///
/// They find tensors in arguments and results of any nesting: lists, arrays, maps, optionals, pairs, tuples, IValues, and types
/// of your own that have a function which returns their tensors:
///
///     std::vector<at::Tensor*> cohort_tensor_fields(Output& output) { return {&output.value, &output.penalty}; }
///
/// Autograd goes through both: a part's gradient reaches its place in the full tensor. Thread-safety: as the tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/data_parallel/placement.h"
#include "cohort/parallel/module/tensor_tree.h"

namespace cohort::nn::parallel {

/// Returns one tensor's parts: at most one per device, fewer if `dim` is shorter or cannot be split so, each on its device. Sizes
/// are those of at::chunk; the last may be smaller. Throws c10::Error for a 0-dimensional tensor.
COHORT_API std::vector<at::Tensor> scatter_tensor(const at::Tensor& tensor, const Devices& devices, int64_t dim);
/// Joins the tensors along `dim` on `target`. 0-dimensional tensors become a vector, with a warning. Throws c10::Error if their
/// shapes do not fit.
COHORT_API at::Tensor gather_tensors(const std::vector<at::Tensor>& tensors, const c10::Device& target, int64_t dim);
/// The same for the contents of an IValue. gather_ivalues throws c10::TypeError for values that cannot be joined, such as
/// numbers.
COHORT_API std::vector<c10::IValue> scatter_ivalue(const c10::IValue& value, const Devices& devices, int64_t dim);
COHORT_API c10::IValue gather_ivalues(const std::vector<c10::IValue>& values, const c10::Device& target, int64_t dim);

namespace detail {

template <class T>
concept HasTensorFields = requires(T& value) {
  { cohort_tensor_fields(value) } -> std::convertible_to<std::vector<at::Tensor*>>;
};

template <class T>
struct IsSharedContainer : std::false_type {};
template <class T>
struct IsSharedContainer<c10::List<T>> : std::true_type {};
template <class Key, class Value>
struct IsSharedContainer<c10::Dict<Key, Value>> : std::true_type {};

template <class T>
concept ScatterableRange =
    cohort::parallel::RangeLike<T> && !std::same_as<typename T::value_type, bool> && requires(T & value) {
  *value.begin() = std::declval<typename T::value_type>();
};

COHORT_API void check_lengths(size_t first, size_t other, const char* of_what);

template <class T>
inline constexpr bool kCannotBeJoined = false;

}  // namespace detail

template <class T>
std::vector<T> scatter(const T& value, const Devices& devices, int64_t dim = 0);
template <class T>
T gather(const std::vector<T>& values, const c10::Device& target, int64_t dim = 0);

namespace detail {

// Builds as many values as the shortest list of parts; `set(part of the i-th element, of the k-th value)`.
template <class T>
class Assembly {
 public:
  explicit Assembly(const T& value, size_t num_devices) : values_(num_devices, value) {}
  template <class Element, class Set>
  void add(const std::vector<Element>& parts, Set set) {
    while (values_.size() > parts.size()) values_.pop_back();
    for (size_t k = 0; k < values_.size(); ++k) set(values_[k], parts[k]);
  }
  std::vector<T> take() { return std::move(values_); }

 private:
  std::vector<T> values_;
};

template <class T, size_t... I>
std::vector<T> scatter_tuple(const T& value, const Devices& devices, int64_t dim, std::index_sequence<I...>) {
  Assembly<T> assembly(value, devices.size());
  (assembly.add(scatter(std::get<I>(value), devices, dim),
                [](T& target, const auto& part) { std::get<I>(target) = part; }),
   ...);
  return assembly.take();
}

template <class T>
std::vector<T> scatter_elements(const T& value, const Devices& devices, int64_t dim) {
  Assembly<T> assembly(value, devices.size());
  int64_t index = 0;
  for (const auto& element : value) {
    using Element = std::decay_t<decltype(element)>;
    if constexpr (cohort::parallel::MapLike<T>) {
      assembly.add(scatter(element.second, devices, dim),
                   [&](T& target, const auto& part) { target.at(element.first) = part; });
    } else {
      assembly.add(scatter(static_cast<const Element&>(element), devices, dim),
                   [&](T& target, const auto& part) { *std::next(target.begin(), index) = part; });
    }
    ++index;
  }
  return assembly.take();
}

template <class T>
std::vector<T> scatter_fields(const T& value, const Devices& devices, int64_t dim) {
  T original = value;
  Assembly<T> assembly(value, devices.size());
  const std::vector<at::Tensor*> fields = cohort_tensor_fields(original);
  for (size_t i = 0; i < fields.size(); ++i) {
    assembly.add(scatter(*fields[i], devices, dim),
                 [&](T& target, const at::Tensor& part) { *cohort_tensor_fields(target)[i] = part; });
  }
  return assembly.take();
}

template <class T, class Of>
auto each(const std::vector<T>& values, Of of) {
  std::vector<std::decay_t<decltype(of(values.front()))>> parts;
  parts.reserve(values.size());
  for (const auto& value : values) parts.push_back(of(value));
  return parts;
}

template <class T, size_t... I>
T gather_tuple(const std::vector<T>& values, const c10::Device& target, int64_t dim, std::index_sequence<I...>) {
  return T(gather(each(values, [](const T& value) { return std::get<I>(value); }), target, dim)...);
}

template <class T>
T gather_map(const std::vector<T>& values, const c10::Device& target, int64_t dim) {
  T result = values.front();
  for (const auto& value : values) {
    TORCH_CHECK_VALUE(value.size() == result.size(), "All dicts must have the same number of keys");
  }
  for (auto& [key, joined] : result) {
    joined = gather(each(values,
                         [&key = key](const T& value) {
                           const auto at = value.find(key);
                           TORCH_CHECK_VALUE(at != value.end(), "[cohort] gather: the replicas' dicts differ in keys");
                           return at->second;
                         }),
                    target, dim);
  }
  return result;
}

template <class T>
T gather_range(const std::vector<T>& values, const c10::Device& target, int64_t dim) {
  T result = values.front();
  const auto size = std::distance(result.begin(), result.end());
  for (const auto& value : values) check_lengths(size, std::distance(value.begin(), value.end()), "lists");
  int64_t index = 0;
  for (auto& joined : result) {
    joined = gather(each(values, [&](const T& value) { return *std::next(value.begin(), index); }), target, dim);
    ++index;
  }
  return result;
}

template <class T>
T gather_fields(std::vector<T> values, const c10::Device& target, int64_t dim) {
  T result = values.front();
  const std::vector<at::Tensor*> joined = cohort_tensor_fields(result);
  for (size_t i = 0; i < joined.size(); ++i) {
    std::vector<at::Tensor> parts;
    for (auto& value : values) {
      const std::vector<at::Tensor*> fields = cohort_tensor_fields(value);
      check_lengths(joined.size(), fields.size(), "results");
      parts.push_back(*fields[i]);
    }
    *joined[i] = gather(parts, target, dim);
  }
  return result;
}

}  // namespace detail

/// Returns the value's parts, one per device; as many as its shortest tensor gives. A value without tensors is copied for each
/// device. Requires a copyable type.
template <class T>
std::vector<T> scatter(const T& value, const Devices& devices, int64_t dim) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return scatter_tensor(value, devices, dim);
  } else if constexpr (std::is_same_v<T, c10::IValue>) {
    return scatter_ivalue(value, devices, dim);
  } else if constexpr (detail::IsSharedContainer<T>::value) {
    return detail::each(scatter_ivalue(value, devices, dim), [](const c10::IValue& part) { return part.to<T>(); });
  } else if constexpr (detail::HasTensorFields<T>) {
    return detail::scatter_fields(value, devices, dim);
  } else if constexpr (cohort::parallel::IsOptional<T>::value) {
    if (!value) return std::vector<T>(devices.size());
    return detail::each(scatter(*value, devices, dim), [](const auto& part) { return T(part); });
  } else if constexpr (cohort::parallel::MapLike<T> || detail::ScatterableRange<T>) {
    return detail::scatter_elements(value, devices, dim);
  } else if constexpr (cohort::parallel::TupleLike<T>) {
    return detail::scatter_tuple(value, devices, dim, std::make_index_sequence<std::tuple_size_v<T>>());
  } else {
    return std::vector<T>(devices.size(), value);
  }
}

/// Joins the replicas' values. If a tensor is undefined, or an optional empty, in the first replica, it stays so. Throws
/// c10::Error for an empty list, c10::ValueError if lists or maps of the replicas have different lengths or keys.
template <class T>
T gather(const std::vector<T>& values, const c10::Device& target, int64_t dim) {
  TORCH_CHECK(!values.empty(), "Expected at least one tensor to gather from");
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return gather_tensors(values, target, dim);
  } else if constexpr (std::is_same_v<T, c10::IValue>) {
    return gather_ivalues(values, target, dim);
  } else if constexpr (detail::IsSharedContainer<T>::value) {
    return gather_ivalues({values.begin(), values.end()}, target, dim).template to<T>();
  } else if constexpr (detail::HasTensorFields<T>) {
    return detail::gather_fields(values, target, dim);
  } else if constexpr (cohort::parallel::IsOptional<T>::value) {
    if (!values.front()) return std::nullopt;
    return gather(detail::each(values,
                               [](const T& value) {
                                 TORCH_CHECK_VALUE(value, "[cohort] gather: some replicas returned no value");
                                 return *value;
                               }),
                  target, dim);
  } else if constexpr (cohort::parallel::MapLike<T>) {
    return detail::gather_map(values, target, dim);
  } else if constexpr (detail::ScatterableRange<T>) {
    return detail::gather_range(values, target, dim);
  } else if constexpr (cohort::parallel::TupleLike<T>) {
    return detail::gather_tuple(values, target, dim, std::make_index_sequence<std::tuple_size_v<T>>());
  } else {
    static_assert(
        detail::kCannotBeJoined<T>,
        "results of several replicas can be joined if they are tensors, or lists, maps, optionals, pairs, tuples "
        "or IValues of tensors; for a type of your own write std::vector<at::Tensor*> cohort_tensor_fields(T&)");
  }
}

}  // namespace cohort::nn::parallel
