/// The types of elements of tensors in files, with their names in each format.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cohort::files {

enum class Dtype : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat8E4M3Fn,
  kFloat8E5M2,
  kFloat8E4M3FnUz,
  kFloat8E5M2FnUz,
  kFloat8E8M0Fnu,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex32,
  kComplex64,
  kComplex128,
};

struct DtypeInfo {
  Dtype dtype;
  /// The size of an element in bytes.
  int64_t size;
  /// The name that PyTorch prints after "torch.": "float32".
  std::string_view torch_name;
  /// The class in pickles: torch.FloatStorage. Empty if torch.save writes torch.storage.UntypedStorage and the dtype separately.
  std::string_view storage_class;
  /// The name in safetensors files: "F32". Empty if the format has no name.
  std::string_view safetensors_name;
};

const DtypeInfo& info_of(Dtype dtype);

std::optional<Dtype> dtype_of_torch_name(std::string_view name);
std::optional<Dtype> dtype_of_storage_class(std::string_view name);
std::optional<Dtype> dtype_of_safetensors_name(std::string_view name);

}  // namespace cohort::files
