/// NumPy's files as tensors and back: what torch.from_numpy(np.load(path)) and np.save(path, tensor.numpy()) do in Python.
///
/// All types that NumPy and LibTorch share: bool, 8 to 64 bit integers with and without sign, float16 to float64, complex64
/// and complex128; both byte orders, C and Fortran order (the tensor is contiguous either way). Arrays of Python objects
/// are pickles and are refused: nothing is executed, as with NumPy's allow_pickle=False.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "cohort/export.h"

namespace cohort::data {

/// Throws c10::Error, with the file, the byte and what was expected there.
COHORT_API at::Tensor load_npy(const std::string& path);

/// Writes any strided tensor, on whatever device. The file appears whole or not at all, readable by its owner.
/// Throws c10::ValueError for a type that NumPy lacks, such as bfloat16, and c10::Error when writing fails.
COHORT_API void save_npy(const std::string& path, const at::Tensor& tensor);

/// All arrays of an archive by their names, those of np.savez and np.savez_compressed. Throws c10::Error as load_npy.
COHORT_API std::map<std::string, at::Tensor> load_npz(const std::string& path);

}  // namespace cohort::data
