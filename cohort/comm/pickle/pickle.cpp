#include "cohort/comm/pickle/pickle.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <c10/util/Exception.h>

#include "cohort/base/pickle_text.h"
#include "cohort/base/pickle_value.h"
#include "cohort/base/pickle_writer.h"
#include "cohort/comm/pickle/pickle_names.h"
#include "cohort/comm/pickle/pickle_storage.h"

namespace cohort::comm {
namespace {

using namespace base::pickle_opcode;

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
  TORCH_CHECK_VALUE(is_bytes(value), "expected bytes made by bytes_value, got a value of type ", value.tagKind());
  return static_cast<const BytesHolder*>(value.toCapsule().get())->bytes;
}

namespace {

using base::PickleWriter;

void put_value(PickleWriter& writer, const c10::IValue& value, int depth);

void put_str(PickleWriter& writer, std::string_view text) {
  TORCH_CHECK_VALUE(base::is_utf8(text), "cannot pickle a string that is not UTF-8 as a Python str; use bytes_value");
  writer.put_text(text);
}

void put_ints(PickleWriter& writer, at::IntArrayRef values) {
  writer.put(kMark);
  for (const auto value : values) writer.put_int(value);
  writer.put(kTuple);
}

// torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), as Tensor.__reduce_ex__ does.
void put_tensor(PickleWriter& writer, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized(), "cannot pickle ",
                    tensor.defined() ? "a sparse or quantized tensor" : "an undefined tensor");
  const auto flat = tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
  writer.put_name("torch._utils", "_rebuild_tensor_v2");
  writer.put(kMark);
  writer.put_name("torch.storage", "_load_from_bytes");
  writer.put_bytes(write_storage(flat.view({-1})));
  writer.put({kTuple1, kReduce, kBinInt1, '\0'});
  put_ints(writer, flat.sizes());
  put_ints(writer, flat.strides());
  writer.put_bool(tensor.requires_grad());
  writer.put_name("collections", "OrderedDict");
  writer.put({kEmptyTuple, kReduce, kTuple, kReduce});
}

void put_container(PickleWriter& writer, const c10::IValue& value, int depth) {
  TORCH_CHECK_VALUE(depth < kMaxPickleDepth, "cannot pickle a value nested deeper than ", kMaxPickleDepth);
  if (value.isList()) {
    const auto list = value.toList();
    writer.put({kEmptyList, kMark});
    for (size_t i = 0; i < list.size(); ++i) put_value(writer, list.get(i), depth + 1);
    writer.put(kAppends);
  } else if (value.isTuple()) {
    const auto& items = value.toTupleRef().elements();
    if (items.empty()) {
      writer.put(kEmptyTuple);
      return;
    }
    writer.put(kMark);
    for (const auto& item : items) put_value(writer, item, depth + 1);
    writer.put(kTuple);
  } else {
    writer.put({kEmptyDict, kMark});
    for (const auto& entry : value.toGenericDict()) {
      put_value(writer, entry.key(), depth + 1);
      put_value(writer, entry.value(), depth + 1);
    }
    writer.put(kSetItems);
  }
}

void put_value(PickleWriter& writer, const c10::IValue& value, int depth) {
  if (value.isTensor()) return put_tensor(writer, value.toTensor());
  if (value.isNone()) {
    writer.put_none();
  } else if (value.isBool()) {
    writer.put_bool(value.toBool());
  } else if (value.isInt()) {
    writer.put_int(value.toInt());
  } else if (value.isDouble()) {
    writer.put_double(value.toDouble());
  } else if (value.isString()) {
    put_str(writer, value.toStringRef());
  } else if (is_bytes(value)) {
    writer.put_bytes(bytes_of(value));
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    writer.put_name("builtins", "complex");
    writer.put_double(number.real());
    writer.put_double(number.imag());
    writer.put({kTuple2, kReduce});
  } else if (value.isList() || value.isTuple() || value.isGenericDict()) {
    put_container(writer, value, depth);
  } else {
    TORCH_CHECK_VALUE(false, "cannot pickle a value of type ", value.tagKind(),
                      "; possible are None, bool, int, float, complex, str, bytes, list, tuple, dict and tensors");
  }
}

}  // namespace

std::string pickle(const c10::IValue& value) {
  PickleWriter writer;
  put_value(writer, value, 0);
  return writer.finish();
}

std::string pickle_bytes(std::string_view bytes) {
  PickleWriter writer;
  writer.put_bytes(bytes);
  return writer.finish();
}

c10::IValue unpickle(std::string_view data) { return read_plain_values(data); }

}  // namespace cohort::comm
