#include "cohort/comm/pickle/pickle.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <c10/util/Exception.h>

#include <complex>
#include <utility>
#include <vector>

#include "cohort/base/pickle/pickle_text.h"
#include "cohort/base/pickle/pickle_value.h"
#include "cohort/comm/pickle/pickle_converter.h"
#include "cohort/comm/pickle/pickle_names.h"
#include "cohort/comm/pickle/pickle_storage.h"

namespace cohort::comm {
namespace {

static_assert(kMaxPickleDepth == base::kMaxPickleDepth);

struct BytesHolder : torch::CustomClassHolder {
  explicit BytesHolder(std::string b) : bytes(std::move(b)) {}
  std::string bytes;
};

}  // namespace

c10::IValue bytes_value(std::string bytes) {
  return c10::IValue::make_capsule(c10::make_intrusive<BytesHolder>(std::move(bytes)));
}

bool is_bytes(const c10::IValue& value) {
  return value.isCapsule() && dynamic_cast<const BytesHolder*>(value.toCapsule().get()) != nullptr;
}

const std::string& bytes_of(const c10::IValue& value) {
  TORCH_CHECK_VALUE(is_bytes(value), "[cohort] expected bytes made by bytes_value, got a value of type ",
                    value.tagKind());
  return static_cast<const BytesHolder*>(value.toCapsule().get())->bytes;
}

namespace {

using base::PickleEntry;
using base::PickleValue;

PickleValue describe(const c10::IValue& value, int depth);

PickleValue describe_text(const std::string& text) {
  TORCH_CHECK_VALUE(base::is_utf8(text),
                    "[cohort] cannot pickle a string that is not UTF-8 as a Python str; use bytes_value");
  return PickleValue::of_text(text);
}

PickleValue describe_ints(at::IntArrayRef values) {
  std::vector<PickleValue> items;
  for (const auto value : values) items.push_back(PickleValue::of_int(value));
  return PickleValue::tuple(std::move(items));
}

// Describes torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), as Tensor.__reduce_ex__ does.
PickleValue describe_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized(),
                    "[cohort] cannot pickle ",
                    tensor.defined() ? "a sparse or quantized tensor" : "an undefined tensor");
  const auto flat = tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
  const auto call = [](const char* module, const char* name, std::vector<PickleValue> arguments) {
    return PickleValue::object(base::PythonName{module, name}, std::move(arguments));
  };
  auto bytes = PickleValue::of_bytes(write_storage(flat.view({-1})));
  return call("torch._utils", "_rebuild_tensor_v2",
              {call("torch.storage", "_load_from_bytes", {std::move(bytes)}), PickleValue::of_int(0),
               describe_ints(flat.sizes()), describe_ints(flat.strides()), PickleValue::of_bool(tensor.requires_grad()),
               call("collections", "OrderedDict", {})});
}

PickleValue describe_container(const c10::IValue& value, int depth) {
  TORCH_CHECK_VALUE(depth < kMaxPickleDepth, "[cohort] cannot pickle a value nested deeper than ", kMaxPickleDepth);
  if (value.isGenericDict()) {
    std::vector<PickleEntry> entries;
    for (const auto& entry : value.toGenericDict())
      entries.push_back({describe(entry.key(), depth + 1), describe(entry.value(), depth + 1)});
    return PickleValue::dict(std::move(entries));
  }
  std::vector<PickleValue> items;
  if (value.isTuple()) {
    for (const auto& item : value.toTupleRef().elements()) items.push_back(describe(item, depth + 1));
    return PickleValue::tuple(std::move(items));
  }
  const auto list = value.toList();
  for (size_t i = 0; i < list.size(); ++i) items.push_back(describe(list.get(i), depth + 1));
  return PickleValue::list(std::move(items));
}

PickleValue describe(const c10::IValue& value, int depth) {
  if (value.isTensor()) return describe_tensor(value.toTensor());
  if (value.isNone()) return {};
  if (value.isBool()) return PickleValue::of_bool(value.toBool());
  if (value.isInt()) return PickleValue::of_int(value.toInt());
  if (value.isDouble()) return PickleValue::of_float(value.toDouble());
  if (value.isComplexDouble()) return PickleValue::of_complex(std::complex<double>(value.toComplexDouble()));
  if (value.isString()) return describe_text(value.toStringRef());
  if (is_bytes(value)) return PickleValue::view_of_bytes(bytes_of(value));
  TORCH_CHECK_VALUE(value.isList() || value.isTuple() || value.isGenericDict(),
                    "[cohort] cannot pickle a value of type ", value.tagKind(),
                    "; possible are None, bool, int, float, complex, str, bytes, list, tuple, dict and tensors");
  return describe_container(value, depth);
}

}  // namespace

std::string pickle(const c10::IValue& value) { return write_pickle_or_throw(describe(value, 0)); }

std::string pickle_bytes(std::string_view bytes) { return write_pickle_or_throw(PickleValue::view_of_bytes(bytes)); }

c10::IValue unpickle(std::string_view data) { return read_plain_values(data); }

}  // namespace cohort::comm
