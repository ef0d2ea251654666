#include "cohort/comm/pickle/pickle_names.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/pickle/pickle_converter.h"
#include "cohort/comm/pickle/pickle_storage.h"

namespace cohort::comm {
namespace {

using base::PickleKind;
using base::PickleValue;
using base::PythonName;
using c10::IValue;

// In protocols 0 to 2, Python writes __builtin__ for builtins.
const PythonName kNames[] = {
    {"_codecs", "encode"},
    {"__builtin__", "bytes"},
    {"builtins", "bytes"},
    {"__builtin__", "bytearray"},
    {"builtins", "bytearray"},
    {"__builtin__", "complex"},
    {"builtins", "complex"},
    {"collections", "OrderedDict"},
    {"torch.storage", "_load_from_bytes"},
    {"torch._utils", "_rebuild_tensor_v2"},
    {"torch._utils", "_rebuild_parameter"},
};

std::string refuse_name(const PythonName& name) {
  const bool is_known = std::any_of(std::begin(kNames), std::end(kNames),
                                    [&](const PythonName& known) { return name.is(known.module, known.name); });
  if (is_known) return "";
  const bool is_torchs = name.module.starts_with("torch");
  return "cannot unpickle: it refers to " + name.text() +
         (is_torchs ? ", which makes a tensor or object of a kind that C++ ranks do not exchange as objects; send "
                      "tensors with broadcast or send"
                    : "; only None, bool, int, float, complex, str, bytes, list, tuple, dict and tensors can be "
                      "exchanged with C++ ranks");
}

void check_arguments(bool ok, const PythonName& name) {
  TORCH_CHECK_VALUE(ok, "[cohort] cannot unpickle: ", name.text(),
                    " is called with other arguments than Python writes");
}

const at::Tensor& with_gradient(const at::Tensor& tensor, bool wanted) {
  const bool is_possible = tensor.is_floating_point() || tensor.is_complex();
  TORCH_CHECK_VALUE(is_possible || !wanted, "[cohort] cannot unpickle a tensor: one of dtype ", tensor.scalar_type(),
                    " has no gradient");
  return tensor.set_requires_grad(wanted);
}

class PlainReader {
 public:
  IValue read(std::string_view data) {
    const base::PickleRead read = read_pickle_or_throw(data, {.refuse_name = refuse_name, .borrow = true});
    return converter_.convert(read.value);
  }

 private:
  IValue make(const PickleValue& object) {
    const PythonName& name = object.name();
    const bool is_dict = name.is("collections", "OrderedDict");
    // A state dict's _metadata has no place in an IValue.
    const bool may_have_state = is_dict && object.object_state().is(PickleKind::kDict);
    TORCH_CHECK_VALUE(object.object_state().is_none() || may_have_state, "[cohort] cannot unpickle: ", name.text(),
                      " is given a state");
    TORCH_CHECK_VALUE(object.items().empty() && (is_dict || object.entries().empty()),
                      "[cohort] cannot unpickle: items are put into what ", name.text(), " makes");
    if (is_dict) {
      check_arguments(object.arguments().empty(), name);
      return converter_.convert_entries(object);
    }
    if (name.name == "_rebuild_tensor_v2") return rebuild_tensor(object);
    if (name.name == "_rebuild_parameter") return rebuild_parameter(object);
    if (name.name == "_load_from_bytes") load_storage(object);
    TORCH_CHECK_VALUE(false, "[cohort] cannot unpickle: a Python function or storage stands as a value");
  }

  const at::Tensor& load_storage(const PickleValue& object) {
    const auto& arguments = object.arguments();
    check_arguments(arguments.size() == 1 && arguments[0].is(PickleKind::kBytes), object.name());
    at::Tensor& flat = storages_[arguments[0].identity()];
    if (!flat.defined()) flat = read_storage(arguments[0].text());
    return flat;
  }

  // Arguments: (storage, offset, size, stride, requires_grad, hooks[, metadata]).
  IValue rebuild_tensor(const PickleValue& object) {
    const auto& a = object.arguments();
    check_arguments((a.size() == 6 || a.size() == 7) && a[0].name().is("torch.storage", "_load_from_bytes") &&
                        a[0].is(PickleKind::kObject) && a[1].is(PickleKind::kInt) && a[1].to_int() >= 0 &&
                        is_sizes(a[2]) && is_sizes(a[3]) && a[4].is(PickleKind::kBool) &&
                        a[2].items().size() == a[3].items().size(),
                    object.name());
    const at::Tensor& flat = load_storage(a[0]);
    at::Tensor tensor;
    try {
      // Below autograd the result is not a view. as_strided checks that it lies inside the storage.
      const at::AutoDispatchBelowADInplaceOrView guard;
      tensor = flat.as_strided(to_sizes(a[2]), to_sizes(a[3]), a[1].to_int());
    } catch (const c10::Error& error) {
      TORCH_CHECK_VALUE(false, "[cohort] cannot unpickle a tensor: ", text_of(error));
    }
    return with_gradient(tensor, a[4].to_bool());
  }

  IValue rebuild_parameter(const PickleValue& object) {
    const auto& arguments = object.arguments();
    check_arguments(arguments.size() == 3 && arguments[1].is(PickleKind::kBool), object.name());
    const IValue tensor = converter_.convert(arguments[0]);
    check_arguments(tensor.isTensor(), object.name());
    return with_gradient(tensor.toTensor(), arguments[1].to_bool());
  }

  PickleConverter converter_{[this](const PickleValue& object) { return make(object); }};
  std::unordered_map<const void*, at::Tensor> storages_;  // by the bytes from which they were read
};

}  // namespace

IValue read_plain_values(std::string_view data) { return PlainReader().read(data); }

}  // namespace cohort::comm
