#include "cohort/extras/data/datasets/numpy_files.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <memory>
#include <utility>

#include "cohort/comm/error/throw_error.h"
#include "cohort/extras/data/datasets/array_tensor.h"
#include "cohort/extras/files/arrays/npy.h"
#include "cohort/extras/files/arrays/npz.h"

namespace cohort::data {
namespace {

using files::DType;

constexpr std::pair<DType, at::ScalarType> kArrayTypes[] = {{DType::kBool, at::kBool},
                                                            {DType::kUInt8, at::kByte},
                                                            {DType::kInt8, at::kChar},
                                                            {DType::kUInt16, at::kUInt16},
                                                            {DType::kInt16, at::kShort},
                                                            {DType::kUInt32, at::kUInt32},
                                                            {DType::kInt32, at::kInt},
                                                            {DType::kUInt64, at::kUInt64},
                                                            {DType::kInt64, at::kLong},
                                                            {DType::kFloat16, at::kHalf},
                                                            {DType::kFloat32, at::kFloat},
                                                            {DType::kFloat64, at::kDouble},
                                                            {DType::kComplex64, at::kComplexFloat},
                                                            {DType::kComplex128, at::kComplexDouble}};

}  // namespace

namespace detail {

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [ours, theirs] : kArrayTypes) {
    if (ours == dtype) return theirs;
  }
  TORCH_INTERNAL_ASSERT(false, "an unknown type of elements");
}

at::Tensor to_tensor(files::ArrayData array) {
  const auto options = at::TensorOptions(scalar_type_of(array.dtype));
  // Shared, as std::function needs a deleter that can be copied.
  std::shared_ptr<char[]> bytes = std::move(array.bytes);
  void* const data = bytes.get();
  return at::from_blob(
      data, array.shape, [bytes = std::move(bytes)](void*) {}, options);
}

}  // namespace detail

at::Tensor load_npy(const std::string& path) { return detail::to_tensor(comm::or_throw(files::read_npy(path))); }

void save_npy(const std::string& path, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "[cohort] save_npy needs a tensor, but got an undefined one");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "[cohort] save_npy writes strided tensors, but got one of layout ",
                    tensor.layout());
  const DType* dtype = nullptr;
  for (const auto& [ours, theirs] : kArrayTypes) {
    if (theirs == tensor.scalar_type()) dtype = &ours;
  }
  TORCH_CHECK_VALUE(dtype, "[cohort] NumPy has no type for a tensor of ", tensor.scalar_type(),
                    "\n  hint: convert it first, for example with tensor.to(at::kFloat)");
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  const auto* const data = static_cast<const char*>(plain.const_data_ptr());
  comm::or_throw(files::write_npy(path, *dtype, plain.sizes(), {data, plain.nbytes()}));
}

std::map<std::string, at::Tensor> load_npz(const std::string& path) {
  const files::NpzFile npz = comm::or_throw(files::NpzFile::open(path));
  std::map<std::string, at::Tensor> tensors;
  for (const auto& name : npz.names()) tensors.emplace(name, detail::to_tensor(comm::or_throw(npz.read(name))));
  return tensors;
}

}  // namespace cohort::data
