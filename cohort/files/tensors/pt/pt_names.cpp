#include "cohort/files/tensors/pt/pt_names.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "cohort/files/tensors/elements/shown_text.h"

namespace cohort::files {
namespace {

using base::PythonName;

struct NameRow {
  std::string_view module;
  std::string_view name;
};

constexpr NameRow kAllowed[] = {
    {"collections", "OrderedDict"},
    {"collections", "Counter"},
    {"torch._utils", "_rebuild_tensor"},
    {"torch._utils", "_rebuild_tensor_v2"},
    {"torch._utils", "_rebuild_tensor_v3"},
    {"torch._utils", "_rebuild_parameter"},
    {"torch._utils", "_rebuild_parameter_with_state"},
    {"torch._tensor", "_rebuild_from_type_v2"},
    {"torch", "Tensor"},
    {"torch.nn.parameter", "Parameter"},
    {"torch", "Size"},
    {"torch", "device"},
    {"_codecs", "encode"},
    {"builtins", "bytearray"},
    {"__builtin__", "bytearray"},
    {"builtins", "bytes"},
    {"__builtin__", "bytes"},
    {"builtins", "complex"},
    {"__builtin__", "complex"},
    {"numpy", "dtype"},
    {"argparse", "Namespace"},
};

// Names that Python reads, but C++ cannot represent.
struct KnownRow {
  std::string_view module;
  std::string_view name;
  std::string_view what;
};
constexpr KnownRow kKnown[] = {
    {"torch._utils", "_rebuild_sparse_tensor", "a sparse tensor; save its indices() and values() instead"},
    {"torch._utils", "_rebuild_qtensor", "a quantized tensor; save its int_repr(), scale and zero point instead"},
    {"torch._utils", "_rebuild_nested_tensor", "a nested tensor; save its parts in a list instead"},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", "a tensor on the meta device, which has no data"},
    {"torch._utils", "_rebuild_wrapper_subclass", "a tensor of a class of its own; save plain tensors instead"},
    {"torch.distributed.tensor", "DTensor", "a part of a distributed tensor; save its full_tensor() instead"},
    {"numpy.core.multiarray", "_reconstruct", "a NumPy array; save torch.from_numpy(array) instead"},
    {"numpy._core.multiarray", "_reconstruct", "a NumPy array; save torch.from_numpy(array) instead"},
};

template <typename Row>
const Row* find_row(const Row* begin, const Row* end, const PythonName& name) {
  const auto* row = std::find_if(begin, end, [&](const Row& one) { return name.is(one.module, one.name); });
  return row == end ? nullptr : row;
}

}  // namespace

std::optional<Dtype> pt_storage_dtype(const PythonName& name) {
  const bool is_untyped = name.is("torch.storage", "UntypedStorage") || name.is("torch", "UntypedStorage");
  if (is_untyped) return Dtype::kUInt8;
  const bool is_class = name.module == "torch" || name.module == "torch.cuda";
  return is_class ? dtype_of_storage_class(name.name) : std::nullopt;
}

std::optional<Dtype> pt_dtype(const PythonName& name) {
  return name.module == "torch" ? dtype_of_torch_name(name.name) : std::nullopt;
}

bool is_numpy_scalar(const PythonName& name) {
  return name.is("numpy.core.multiarray", "scalar") || name.is("numpy._core.multiarray", "scalar");
}

std::string refuse_pt_name(const PythonName& name) {
  const bool is_allowed = find_row(std::begin(kAllowed), std::end(kAllowed), name) || pt_storage_dtype(name) ||
                          pt_dtype(name) || is_numpy_scalar(name);
  if (is_allowed) return "";
  if (const KnownRow* known = find_row(std::begin(kKnown), std::end(kKnown), name)) {
    return "it holds " + std::string(known->what);
  }
  return "it refers to " + shortened(name.text()) + ", which plain values and tensors do not need; it was not run";
}

}  // namespace cohort::files
