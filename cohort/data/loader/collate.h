/// collate() joins the examples of a batch, as PyTorch's default_collate does:
///
/// ```text
/// Tensor                              -> stacked Tensor
/// int, long, bool                     -> int64 or bool Tensor;  float, double -> float32 or float64 Tensor
/// string                              -> vector of strings
/// pair, tuple, array, vector, map     -> the same, each position joined
/// a plain struct of up to 8 fields    -> the same struct, each field joined (fields that keep their type: Tensors,
///                                        structs, maps of Tensors, ...)
/// a type with `data` and `target`, or `data` alone, such as torch::data::Example<> -> the same
/// ```
///
/// For other types, give the DataLoader a collate function.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <concepts>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

/// Stacks tensors of one shape along a new first dimension. Throws c10::Error naming the first two shapes that differ, and
/// c10::IndexError without tensors.
COHORT_API at::Tensor collate(const std::vector<at::Tensor>& examples);

namespace detail {

COHORT_API at::Tensor collate_integers(const std::vector<int64_t>& values);
COHORT_API at::Tensor collate_floats(const std::vector<double>& values, at::ScalarType type);
COHORT_API at::Tensor collate_bools(const std::vector<bool>& values);
COHORT_API void check_equal_size(bool is_equal);
/// Throws c10::IndexError, as Python does, for a batch without examples.
COHORT_API void check_has_examples(bool has_any);

/// Converts to any type, to count the fields of a plain struct.
struct AnyField {
  template <typename T>
  operator T() const;
};

template <typename T, typename... Fields>
constexpr int count_fields() {
  if constexpr (requires { T{Fields{}..., AnyField{}}; } && sizeof...(Fields) < 9) {
    return count_fields<T, Fields..., AnyField>();
  } else {
    return sizeof...(Fields);
  }
}

template <typename T>
concept PlainStruct = std::is_aggregate_v<T> && std::is_class_v<T> &&(count_fields<T>() >= 1) &&
                      (count_fields<T>() <= 8);

template <PlainStruct T>
constexpr auto fields_of(T& value) {
  constexpr int kCount = count_fields<std::remove_const_t<T>>();
  // clang-format off
  if constexpr (kCount == 1) { auto& [a] = value; return std::tie(a); }
  else if constexpr (kCount == 2) { auto& [a, b] = value; return std::tie(a, b); }
  else if constexpr (kCount == 3) { auto& [a, b, c] = value; return std::tie(a, b, c); }
  else if constexpr (kCount == 4) { auto& [a, b, c, d] = value; return std::tie(a, b, c, d); }
  else if constexpr (kCount == 5) { auto& [a, b, c, d, e] = value; return std::tie(a, b, c, d, e); }
  else if constexpr (kCount == 6) { auto& [a, b, c, d, e, f] = value; return std::tie(a, b, c, d, e, f); }
  else if constexpr (kCount == 7) { auto& [a, b, c, d, e, f, g] = value; return std::tie(a, b, c, d, e, f, g); }
  else { auto& [a, b, c, d, e, f, g, h] = value; return std::tie(a, b, c, d, e, f, g, h); }
  // clang-format on
}

template <typename T>
concept DataAndTarget = requires(T example) {
  example.data;
  example.target;
  T(example.data, example.target);
}
&&!std::is_aggregate_v<T>;

template <typename T>
concept DataOnly = requires(T example) {
  example.data;
  T(example.data);
}
&&!requires(T example) { example.target; }
&&!std::is_aggregate_v<T>;

template <typename T>
struct Collate;  // for a T without a rule, give the DataLoader a collate function

/// The type of joined examples of type T.
template <typename T>
using Collated = decltype(Collate<T>::join(std::declval<const std::vector<T>&>()));

/// Joins one part of every example, which part(example) returns.
template <typename T, typename Part>
auto collate_part(const std::vector<T>& examples, Part part) {
  using Value = std::remove_cvref_t<decltype(part(examples.front()))>;
  std::vector<Value> values;
  values.reserve(examples.size());
  for (const T& example : examples) values.push_back(part(example));
  return Collate<Value>::join(values);
}

template <>
struct Collate<at::Tensor> {
  static at::Tensor join(const std::vector<at::Tensor>& examples) { return collate(examples); }
};

template <std::integral T>
struct Collate<T> {
  static at::Tensor join(const std::vector<T>& examples) {
    if constexpr (std::is_same_v<T, bool>)
      return collate_bools(examples);
    else
      return collate_integers({examples.begin(), examples.end()});
  }
};

template <std::floating_point T>
struct Collate<T> {
  static at::Tensor join(const std::vector<T>& examples) {
    return collate_floats({examples.begin(), examples.end()}, sizeof(T) == 4 ? at::kFloat : at::kDouble);
  }
};

template <>
struct Collate<std::string> {
  static std::vector<std::string> join(const std::vector<std::string>& examples) { return examples; }
};

template <typename A, typename B>
struct Collate<std::pair<A, B>> {
  static auto join(const std::vector<std::pair<A, B>>& examples) {
    return std::pair(collate_part(examples, [](const auto& example) { return example.first; }),
                     collate_part(examples, [](const auto& example) { return example.second; }));
  }
};

template <typename... Parts>
struct Collate<std::tuple<Parts...>> {
  static auto join(const std::vector<std::tuple<Parts...>>& examples) {
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return std::tuple<Collated<Parts>...>{
          collate_part(examples, [](const auto& example) { return std::get<I>(example); })...};
    }
    (std::index_sequence_for<Parts...>());
  }
};

template <typename T, size_t N>
struct Collate<std::array<T, N>> {
  static auto join(const std::vector<std::array<T, N>>& examples) {
    std::array<Collated<T>, N> result;
    for (size_t i = 0; i < N; ++i) result[i] = collate_part(examples, [i](const auto& example) { return example[i]; });
    return result;
  }
};

template <typename T>
struct Collate<std::vector<T>> {
  static auto join(const std::vector<std::vector<T>>& examples) {
    std::vector<Collated<T>> result;
    for (const auto& example : examples) check_equal_size(example.size() == examples.front().size());
    for (size_t i = 0; i < examples.front().size(); ++i) {
      result.push_back(collate_part(examples, [i](const auto& example) { return T(example[i]); }));
    }
    return result;
  }
};

template <typename Key, typename T>
struct Collate<std::map<Key, T>> {
  static auto join(const std::vector<std::map<Key, T>>& examples) {
    std::map<Key, Collated<T>> result;
    for (const auto& [key, value] : examples.front()) {
      result.emplace(key, collate_part(examples, [&key = key](const auto& example) { return example.at(key); }));
    }
    return result;
  }
};

template <DataAndTarget T>
struct Collate<T> {
  static T join(const std::vector<T>& examples) {
    return T(collate_part(examples, [](const T& example) { return example.data; }),
             collate_part(examples, [](const T& example) { return example.target; }));
  }
};

template <DataOnly T>
struct Collate<T> {
  static T join(const std::vector<T>& examples) {
    return T(collate_part(examples, [](const T& example) { return example.data; }));
  }
};

template <PlainStruct T>
struct Collate<T> {
  static T join(const std::vector<T>& examples) {
    T result = examples.front();
    auto fields = fields_of(result);
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((std::get<I>(fields) = collate_part(examples, [](const T& example) { return std::get<I>(fields_of(example)); })),
       ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(fields)>>());
    return result;
  }
};

}  // namespace detail

/// Joins examples of any type listed above. Throws c10::IndexError without examples.
template <typename T>
auto collate(const std::vector<T>& examples) {
  detail::check_has_examples(!examples.empty());
  return detail::Collate<T>::join(examples);
}

}  // namespace cohort::data
