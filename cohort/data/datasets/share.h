/// share(): turns a dataset, or a shared pointer to one, into a shared pointer. Datasets that hold other datasets use it.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "cohort/data/datasets/dataset.h"

namespace cohort::data::detail {

template <typename T>
struct Shared {
  using Type = T;
};
template <typename T>
struct Shared<std::shared_ptr<T>> {
  using Type = T;
};
/// The type of the dataset, whether or not `T` is a shared pointer to it.
template <typename T>
using SharedType = typename Shared<std::remove_cvref_t<T>>::Type;

/// Throws like not_null().
template <typename T>
std::shared_ptr<SharedType<T>> share(T dataset, const char* who) {
  if constexpr (std::is_same_v<T, SharedType<T>>) {
    return std::make_shared<T>(std::move(dataset));
  } else {
    return not_null(std::move(dataset), who);
  }
}

}  // namespace cohort::data::detail
