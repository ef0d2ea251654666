/// What a reader has found, as numbers.
#pragma once

#include <cstring>
#include <vector>

#include "cohort/extras/files/arrays/array_data.h"
#include "tests/files/file_bytes.h"

namespace cohort::test {

template <typename T>
std::vector<T> values(const files::ArrayData& array) {
  std::vector<T> found(array.num_bytes / sizeof(T));
  std::memcpy(static_cast<void*>(found.data()), array.bytes.get(), array.num_bytes);
  return found;
}

}  // namespace cohort::test
