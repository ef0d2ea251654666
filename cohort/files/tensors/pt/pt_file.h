/// PtFile: the content of a file of torch.save, read without LibTorch and without running code: its tree of values, its tensors,
/// and the places of their bytes. Reads the zip files of every PyTorch since 1.6, in either byte order, and the older files,
/// which are a sequence of pickles.
///
/// Only names with which tensors and plain values are made are allowed; any other name is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/pickle/pickle_value.h"
#include "cohort/files/input/random_access_file.h"
#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// The memory of tensors, which are views of it.
struct PtStorage {
  std::string key;
  /// The type that the file gives it; a tensor of another type may use it.
  Dtype dtype = Dtype::kUInt8;
  /// The type of its tensors, whose bytes are reversed in a file of the other byte order.
  Dtype element_dtype = Dtype::kUInt8;
  /// The device it was on: "cpu", "cuda:1".
  std::string device;
  /// The place in the file.
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
  /// The checksum of its bytes, if the format has one.
  std::optional<uint32_t> crc = {};
};

/// A view of a storage. It is inside the storage, and its numbers of elements and bytes fit int64_t.
struct PtTensor {
  size_t storage = 0;
  Dtype dtype = Dtype::kFloat32;
  /// The offset in elements, as strides are.
  int64_t offset = 0;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};
  bool requires_grad = false;
  /// Whether it is a torch.nn.Parameter.
  bool is_parameter = false;
  /// Whether the elements represent their conjugates or negatives.
  bool is_conjugate = false;
  bool is_negative = false;
};

enum class PtFormat : uint8_t { kZip, kLegacy };

struct PtFile {
  PtFormat format = PtFormat::kZip;
  bool is_big_endian = false;
  /// The size of the pickle that describes the tree.
  uint64_t pickle_size = 0;
  /// The tree of values. Its objects are those of `tensors` and `plain`, collections.OrderedDict and collections.Counter (with
  /// entries()).
  base::PickleValue root;
  /// The storages in the order of their first use in the tree.
  std::vector<PtStorage> storages;
  /// The tensors by identity in the tree. A parameter and the tensor that it is made from are two tensors.
  std::unordered_map<const void*, PtTensor> tensors;
  /// The plain values of other objects and names, by identity: torch.Size is its tuple, a NumPy scalar its number, a dtype a
  /// text.
  std::unordered_map<const void*, base::PickleValue> plain;

  /// Returns null for values that are not tensors.
  const PtTensor* tensor(const base::PickleValue& value) const {
    const auto found = tensors.find(value.identity());
    return found == tensors.end() ? nullptr : &found->second;
  }
};

/// Reads a file. Errors are `cannot read "x.pt"`, with the reason as the cause.
base::Result<PtFile> read_pt_file(const RandomAccessFile& file);

}  // namespace cohort::files
