#include "cohort/comm/pickle/pickle_names.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/comm/pickle/pickle.h"
#include "cohort/comm/pickle/pickle_storage.h"
#include "cohort/comm/pickle/pickle_text.h"

namespace cohort::comm {
namespace {

using c10::IValue;
using Arguments = std::vector<IValue>;

struct StorageHolder : torch::CustomClassHolder {
  explicit StorageHolder(at::Tensor t) : flat(std::move(t)) {}
  at::Tensor flat;
};

void check_arguments(bool ok, const PythonName& name) {
  TORCH_CHECK_VALUE(ok, "cannot unpickle: ", name.module, ".", name.name,
                    " is called with other arguments than Python writes");
}

// bytes written before protocol 3: the text whose code points they are.
IValue encode_name(const PythonName& name, const Arguments& arguments) {
  check_arguments(arguments.size() == 2 && arguments[0].isString(), name);
  auto bytes = to_latin1(arguments[0].toStringRef());
  check_arguments(bytes.has_value(), name);
  return bytes_value(std::move(*bytes));
}

IValue make_bytes(const PythonName& name, const Arguments& arguments) {
  if (arguments.empty()) return bytes_value({});
  if (arguments.size() == 2) return encode_name(name, arguments);
  check_arguments(arguments.size() == 1 && is_bytes(arguments[0]), name);
  return arguments[0];
}

IValue make_complex(const PythonName& name, const Arguments& arguments) {
  check_arguments(arguments.size() == 2 && arguments[0].isDouble() && arguments[1].isDouble(), name);
  return c10::complex<double>(arguments[0].toDouble(), arguments[1].toDouble());
}

IValue make_dict(const PythonName& name, const Arguments& arguments) {
  check_arguments(arguments.empty(), name);
  return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get());
}

IValue load_storage(const PythonName& name, const Arguments& arguments) {
  check_arguments(arguments.size() == 1 && is_bytes(arguments[0]), name);
  return IValue::make_capsule(c10::make_intrusive<StorageHolder>(read_storage(bytes_of(arguments[0]))));
}

bool is_ints(const IValue& value) {
  if (!value.isTuple()) return false;
  const auto& items = value.toTupleRef().elements();
  return std::all_of(items.begin(), items.end(), [](const IValue& item) { return item.isInt() && item.toInt() >= 0; });
}

std::vector<int64_t> to_ints(const IValue& tuple) {
  std::vector<int64_t> result;
  for (const auto& item : tuple.toTupleRef().elements()) result.push_back(item.toInt());
  return result;
}

const at::Tensor& with_gradient(const at::Tensor& tensor, bool wanted) {
  const bool is_possible = tensor.is_floating_point() || tensor.is_complex();
  TORCH_CHECK_VALUE(is_possible || !wanted, "cannot unpickle a tensor: one of dtype ", tensor.scalar_type(),
                    " has no gradient");
  return tensor.set_requires_grad(wanted);
}

// (storage, offset, size, stride, requires_grad, hooks[, metadata])
IValue rebuild_tensor(const PythonName& name, const Arguments& a) {
  check_arguments((a.size() == 6 || a.size() == 7) && a[0].isCapsule() && a[1].isInt() && a[1].toInt() >= 0 &&
                      is_ints(a[2]) && is_ints(a[3]) && a[4].isBool(),
                  name);
  const auto capsule = a[0].toCapsule();
  const auto* storage = dynamic_cast<const StorageHolder*>(capsule.get());
  const auto sizes = to_ints(a[2]);
  const auto strides = to_ints(a[3]);
  check_arguments(storage && sizes.size() == strides.size(), name);
  at::Tensor tensor;
  try {
    // Below autograd the result is a tensor of its own, not a view. as_strided checks that it lies inside the storage.
    const at::AutoDispatchBelowADInplaceOrView guard;
    tensor = storage->flat.as_strided(sizes, strides, a[1].toInt());
  } catch (const c10::Error& error) {
    TORCH_CHECK_VALUE(false, "cannot unpickle a tensor: ", error.what_without_backtrace());
  }
  return with_gradient(tensor, a[4].toBool());
}

IValue rebuild_parameter(const PythonName& name, const Arguments& arguments) {
  check_arguments(arguments.size() == 3 && arguments[0].isTensor() && arguments[1].isBool(), name);
  return with_gradient(arguments[0].toTensor(), arguments[1].toBool());
}

struct Row {
  const char* module;
  const char* name;
  IValue (*call)(const PythonName&, const Arguments&);
};

// __builtin__ is what Python writes for builtins in protocols 0 to 2.
constexpr Row kRows[] = {
    {"_codecs", "encode", encode_name},
    {"__builtin__", "bytes", make_bytes},
    {"builtins", "bytes", make_bytes},
    {"__builtin__", "bytearray", make_bytes},
    {"builtins", "bytearray", make_bytes},
    {"__builtin__", "complex", make_complex},
    {"builtins", "complex", make_complex},
    {"collections", "OrderedDict", make_dict},
    {"torch.storage", "_load_from_bytes", load_storage},
    {"torch._utils", "_rebuild_tensor_v2", rebuild_tensor},
    {"torch._utils", "_rebuild_parameter", rebuild_parameter},
};

const Row* find_row(const PythonName& name) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& candidate) {
    return name.module == candidate.module && name.name == candidate.name;
  });
  return row == std::end(kRows) ? nullptr : row;
}

void check_name(const PythonName& name) {
  if (find_row(name)) return;
  const bool tensor = name.module.rfind("torch", 0) == 0;
  TORCH_CHECK_VALUE(false, "cannot unpickle: it refers to ", name.module, ".", name.name,
                    tensor
                        ? ", which makes a tensor or object of a kind that C++ ranks do not exchange as objects; send "
                          "tensors with broadcast or send"
                        : "; only None, bool, int, float, complex, str, bytes, list, tuple, dict and tensors can be "
                          "exchanged with C++ ranks");
}

}  // namespace

UnpicklerNames plain_names() {
  return {
      .check = check_name,
      .call = [](const PythonName& name, const Arguments& arguments) { return find_row(name)->call(name, arguments); },
      .load_persistent = {},
      .build = {}};
}

}  // namespace cohort::comm
