/// share(): datasets of datasets hold what they are given by a shared pointer, and take one as well, but no null pointer.
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
/// The dataset's type, whether it is held by a shared pointer or not.
template <typename T>
using SharedType = typename Shared<std::remove_cvref_t<T>>::Type;

/// Throws as not_null().
template <typename T>
std::shared_ptr<SharedType<T>> share(T dataset, const char* who) {
  if constexpr (std::is_same_v<T, SharedType<T>>) {
    return std::make_shared<T>(std::move(dataset));
  } else {
    return not_null(std::move(dataset), who);
  }
}

}  // namespace cohort::data::detail
