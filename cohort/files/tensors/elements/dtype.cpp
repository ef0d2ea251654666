#include "cohort/files/tensors/elements/dtype.h"

#include <algorithm>
#include <iterator>

namespace cohort::files {
namespace {

// In the order of the enumeration.
constexpr DtypeInfo kDtypes[] = {
    {Dtype::kBool, 1, "bool", "BoolStorage", "BOOL"},
    {Dtype::kUInt8, 1, "uint8", "ByteStorage", "U8"},
    {Dtype::kInt8, 1, "int8", "CharStorage", "I8"},
    {Dtype::kInt16, 2, "int16", "ShortStorage", "I16"},
    {Dtype::kUInt16, 2, "uint16", "", "U16"},
    {Dtype::kInt32, 4, "int32", "IntStorage", "I32"},
    {Dtype::kUInt32, 4, "uint32", "", "U32"},
    {Dtype::kInt64, 8, "int64", "LongStorage", "I64"},
    {Dtype::kUInt64, 8, "uint64", "", "U64"},
    {Dtype::kFloat8E4M3Fn, 1, "float8_e4m3fn", "", "F8_E4M3"},
    {Dtype::kFloat8E5M2, 1, "float8_e5m2", "", "F8_E5M2"},
    {Dtype::kFloat8E4M3FnUz, 1, "float8_e4m3fnuz", "", "F8_E4M3FNUZ"},
    {Dtype::kFloat8E5M2FnUz, 1, "float8_e5m2fnuz", "", "F8_E5M2FNUZ"},
    {Dtype::kFloat8E8M0Fnu, 1, "float8_e8m0fnu", "", "F8_E8M0"},
    {Dtype::kFloat16, 2, "float16", "HalfStorage", "F16"},
    {Dtype::kBFloat16, 2, "bfloat16", "BFloat16Storage", "BF16"},
    {Dtype::kFloat32, 4, "float32", "FloatStorage", "F32"},
    {Dtype::kFloat64, 8, "float64", "DoubleStorage", "F64"},
    {Dtype::kComplex32, 4, "complex32", "", ""},
    {Dtype::kComplex64, 8, "complex64", "ComplexFloatStorage", "C64"},
    {Dtype::kComplex128, 16, "complex128", "ComplexDoubleStorage", ""},
};

std::optional<Dtype> find(std::string_view DtypeInfo::*column, std::string_view name) {
  const auto* row = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                 [&](const DtypeInfo& info) { return !name.empty() && info.*column == name; });
  return row == std::end(kDtypes) ? std::nullopt : std::optional(row->dtype);
}

}  // namespace

const DtypeInfo& info_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)]; }

std::optional<Dtype> dtype_of_torch_name(std::string_view name) { return find(&DtypeInfo::torch_name, name); }
std::optional<Dtype> dtype_of_storage_class(std::string_view name) { return find(&DtypeInfo::storage_class, name); }
std::optional<Dtype> dtype_of_safetensors_name(std::string_view name) {
  return find(&DtypeInfo::safetensors_name, name);
}

}  // namespace cohort::files
