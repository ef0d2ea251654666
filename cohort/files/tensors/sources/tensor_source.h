/// TensorSource: a file of tensors in any format, for tools and converters: its content, and any bytes of any tensor.
///
/// Thread-safety: const; any number of threads may read.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/pickle/pickle_value.h"
#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

struct TensorInfo {
  /// The name, with dots for nested dicts and lists: "model.layer1.weight", "optimizer.state.0.exp_avg".
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  /// The shape. The number of elements times the size of one fits int64_t.
  std::vector<int64_t> shape;

  int64_t num_elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
  int64_t num_bytes() const { return num_elements() * info_of(dtype).size; }
};

/// A value that is not a tensor, with its name with dots.
struct PlainEntry {
  std::string name;
  base::PickleValue value;
};

struct TensorFileContents {
  /// The tensors in the order of the file.
  std::vector<TensorInfo> tensors;
  /// None, bool, int, float, complex, str and bytes, and empty lists, tuples and dicts. Other values are flattened into their
  /// items.
  std::vector<PlainEntry> values;
  /// The file's description of itself.
  std::map<std::string, std::string> metadata;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  const std::string& path() const { return path_; }
  /// The format: "PyTorch zip", "PyTorch legacy", "safetensors".
  const std::string& format() const { return format_; }
  const TensorFileContents& contents() const { return contents_; }
  const std::vector<TensorInfo>& tensors() const { return contents_.tensors; }

  /// Reads bytes of tensors()[tensor] from `first_byte` on until `to` is full. The elements are in row-major order, little
  /// endian. Requires that the range is inside the tensor.
  virtual base::Result<void> read(size_t tensor, uint64_t first_byte, std::span<char> to) const = 0;

 protected:
  TensorSource(std::string path, std::string format) : path_(std::move(path)), format_(std::move(format)) {}

  TensorFileContents contents_;

 private:
  std::string path_;
  std::string format_;
};

}  // namespace cohort::files
