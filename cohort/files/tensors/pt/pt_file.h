/// PtFile: what a file of torch.save says, without LibTorch and without running anything: its tree of values, the tensors in it,
/// and where their bytes lie. Reads the zip files of every PyTorch since 1.6, either byte order, and the older files that are one
/// pickle after another.
///
/// Only names that tensors and plain values are made with are let pass; a file that refers to another is an error that names it.
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

/// Memory that tensors are views of.
struct PtStorage {
  std::string key;
  /// As the file says; a tensor of another type may be in it.
  Dtype dtype = Dtype::kUInt8;
  /// What its tensors are made of: whose bytes are turned around in a file of the other byte order.
  Dtype element_dtype = Dtype::kUInt8;
  /// Where it was: "cpu", "cuda:1".
  std::string device;
  /// In the file.
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
  /// The checksum of its bytes, where the format has one.
  std::optional<uint32_t> crc = {};
};

/// A view of a storage. It lies inside it, and the numbers of elements and bytes fit int64_t.
struct PtTensor {
  size_t storage = 0;
  Dtype dtype = Dtype::kFloat32;
  /// In elements, as strides are.
  int64_t offset = 0;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};
  bool requires_grad = false;
  /// A torch.nn.Parameter.
  bool is_parameter = false;
  /// The elements stand for their conjugates or negatives.
  bool is_conjugate = false;
  bool is_negative = false;
};

enum class PtFormat : uint8_t { kZip, kLegacy };

struct PtFile {
  PtFormat format = PtFormat::kZip;
  bool is_big_endian = false;
  /// Bytes of the pickle that describes the tree.
  uint64_t pickle_size = 0;
  /// Objects in it are those of `tensors` and `plain`, collections.OrderedDict and collections.Counter (with entries()).
  base::PickleValue root;
  /// In the order in which the tree comes to them.
  std::vector<PtStorage> storages;
  /// By identity in the tree. A parameter and the tensor that it is made from are two.
  std::unordered_map<const void*, PtTensor> tensors;
  /// What other objects and names stand for, by identity: torch.Size is its tuple, a NumPy scalar its number, a dtype a text.
  std::unordered_map<const void*, base::PickleValue> plain;

  /// Null for values that are no tensors.
  const PtTensor* tensor(const base::PickleValue& value) const {
    const auto found = tensors.find(value.identity());
    return found == tensors.end() ? nullptr : &found->second;
  }
};

/// Errors: `cannot read "x.pt"` with the reason as its cause.
base::Result<PtFile> read_pt_file(const RandomAccessFile& file);

}  // namespace cohort::files
