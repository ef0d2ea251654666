/// TensorSource: a file of tensors, whatever its format, for tools and converters: what is in it, and any bytes of any tensor.
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
  /// With dots for nested dicts and lists: "model.layer1.weight", "optimizer.state.0.exp_avg".
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  /// The number of elements times the size of one fits int64_t.
  std::vector<int64_t> shape;

  int64_t num_elements() const {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return count;
  }
  int64_t num_bytes() const { return num_elements() * info_of(dtype).size; }
};

/// A value that is no tensor, by its name with dots.
struct PlainEntry {
  std::string name;
  base::PickleValue value;
};

struct TensorFileContents {
  /// In the order of the file.
  std::vector<TensorInfo> tensors;
  /// None, bool, int, float, complex, str and bytes, and empty lists, tuples and dicts. Others are taken apart into their items.
  std::vector<PlainEntry> values;
  /// What the file says about itself.
  std::map<std::string, std::string> metadata;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  const std::string& path() const { return path_; }
  /// "PyTorch zip", "PyTorch legacy", "safetensors"
  const std::string& format() const { return format_; }
  const TensorFileContents& contents() const { return contents_; }
  const std::vector<TensorInfo>& tensors() const { return contents_.tensors; }

  /// The bytes from `first_byte` on of tensors()[tensor], whose elements lie in row-major order, little endian; as many as `to`
  /// holds. Requires: they lie inside the tensor.
  virtual base::Result<void> read(size_t tensor, uint64_t first_byte, std::span<char> to) const = 0;

 protected:
  TensorSource(std::string path, std::string format) : path_(std::move(path)), format_(std::move(format)) {}

  TensorFileContents contents_;

 private:
  std::string path_;
  std::string format_;
};

}  // namespace cohort::files
