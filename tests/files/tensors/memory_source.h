/// A TensorSource for tests: tensors that lie in memory, and are read in pieces of odd sizes if that is asked for.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

class MemorySource final : public TensorSource {
 public:
  explicit MemorySource(std::string path = "memory") : TensorSource(std::move(path), "memory") {}

  template <typename T>
  MemorySource& add(const std::string& name, Dtype dtype, std::vector<int64_t> shape, const std::vector<T>& elements) {
    contents_.tensors.push_back({.name = name, .dtype = dtype, .shape = std::move(shape)});
    bytes_.emplace_back(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T));
    return *this;
  }
  MemorySource& add_value(const std::string& name, base::PickleValue value) {
    contents_.values.push_back({.name = name, .value = std::move(value)});
    return *this;
  }

  base::Result<void> read(size_t tensor, uint64_t first_byte, std::span<char> to) const override {
    if (first_byte + to.size() > bytes_[tensor].size())
      return base::Error("read outside of \"" + tensors()[tensor].name + "\"");
    std::memcpy(to.data(), bytes_[tensor].data() + first_byte, to.size());
    return {};
  }

 private:
  std::vector<std::string> bytes_;
};

}  // namespace cohort::files
