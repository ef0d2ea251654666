#include "cohort/comm/pickle/pickle.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <c10/util/Exception.h>

#include <bit>
#include <limits>

#include "cohort/comm/pickle/pickle_names.h"
#include "cohort/comm/pickle/pickle_opcodes.h"
#include "cohort/comm/pickle/pickle_storage.h"
#include "cohort/comm/pickle/pickle_text.h"
#include "cohort/comm/pickle/pickle_writer.h"
#include "cohort/comm/pickle/unpickle.h"

namespace cohort::comm {
namespace {

using namespace pickle_opcode;

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

void PickleWriter::put_unsigned(uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
}

void PickleWriter::put_int(int64_t value) {
  if (value >= 0 && value <= 0xFFFF) {
    out_ += value <= 0xFF ? kBinInt1 : kBinInt2;
    put_unsigned(value, value <= 0xFF ? 1 : 2);
  } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    out_ += kBinInt;
    put_unsigned(static_cast<uint64_t>(value), 4);
  } else {
    out_ += kLong1;
    out_ += '\x08';
    put_unsigned(static_cast<uint64_t>(value), 8);
  }
}

void PickleWriter::put_double(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  out_ += kBinFloat;
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift);
}

void PickleWriter::put_sized(std::string_view bytes, char small, char medium, char large) {
  const bool is_small = bytes.size() <= 0xFF;
  const bool is_medium = bytes.size() <= 0xFFFFFFFF;
  out_ += is_small ? small : is_medium ? medium : large;
  put_unsigned(bytes.size(), is_small ? 1 : is_medium ? 4 : 8);
  out_.append(bytes);
}

void PickleWriter::put_string(std::string_view text) {
  TORCH_CHECK_VALUE(is_utf8(text), "cannot pickle a string that is not UTF-8 as a Python str; use bytes_value");
  put_sized(text, kShortBinUnicode, kBinUnicode, kBinUnicode8);
}

void PickleWriter::put_bytes(std::string_view bytes) { put_sized(bytes, kShortBinBytes, kBinBytes, kBinBytes8); }

void PickleWriter::put_name(const char* module, const char* name) {
  put_string(module);
  put_string(name);
  out_ += kStackGlobal;
}

void PickleWriter::put_ints(at::IntArrayRef values) {
  out_ += kMark;
  for (const auto value : values) put_int(value);
  out_ += kTuple;
}

// torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), as Tensor.__reduce_ex__ does.
void PickleWriter::put_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized(), "cannot pickle ",
                    tensor.defined() ? "a sparse or quantized tensor" : "an undefined tensor");
  const auto flat = tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
  put_name("torch._utils", "_rebuild_tensor_v2");
  out_ += kMark;
  put_name("torch.storage", "_load_from_bytes");
  put_bytes(write_storage(flat.view({-1})));
  out_ += {kTuple1, kReduce, kBinInt1, '\0'};
  put_ints(flat.sizes());
  put_ints(flat.strides());
  out_ += tensor.requires_grad() ? kNewTrue : kNewFalse;
  put_name("collections", "OrderedDict");
  out_ += {kEmptyTuple, kReduce, kTuple, kReduce};
}

void PickleWriter::put_items(at::ArrayRef<c10::IValue> items, int depth) {
  for (const auto& item : items) put(item, depth + 1);
}

void PickleWriter::put_container(const c10::IValue& value, int depth) {
  TORCH_CHECK_VALUE(depth < kMaxPickleDepth, "cannot pickle a value nested deeper than ", kMaxPickleDepth);
  if (value.isList()) {
    const auto list = value.toList();
    out_ += {kEmptyList, kMark};
    for (size_t i = 0; i < list.size(); ++i) put(list.get(i), depth + 1);
    out_ += kAppends;
  } else if (value.isTuple()) {
    const auto& items = value.toTupleRef().elements();
    if (items.empty()) {
      out_ += kEmptyTuple;
      return;
    }
    out_ += kMark;
    put_items(items, depth);
    out_ += kTuple;
  } else {
    out_ += {kEmptyDict, kMark};
    for (const auto& entry : value.toGenericDict()) {
      put(entry.key(), depth + 1);
      put(entry.value(), depth + 1);
    }
    out_ += kSetItems;
  }
}

void PickleWriter::put(const c10::IValue& value, int depth) {
  if (value.isTensor()) return put_tensor(value.toTensor());
  if (value.isNone()) {
    out_ += kNone;
  } else if (value.isBool()) {
    out_ += value.toBool() ? kNewTrue : kNewFalse;
  } else if (value.isInt()) {
    put_int(value.toInt());
  } else if (value.isDouble()) {
    put_double(value.toDouble());
  } else if (value.isString()) {
    put_string(value.toStringRef());
  } else if (is_bytes(value)) {
    put_bytes(bytes_of(value));
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    put_name("builtins", "complex");
    put_double(number.real());
    put_double(number.imag());
    out_ += {kTuple2, kReduce};
  } else if (value.isList() || value.isTuple() || value.isGenericDict()) {
    put_container(value, depth);
  } else {
    TORCH_CHECK_VALUE(false, "cannot pickle a value of type ", value.tagKind(),
                      "; possible are None, bool, int, float, complex, str, bytes, list, tuple, dict and tensors");
  }
}

std::string PickleWriter::finish() {
  out_ += kStop;
  return std::move(out_);
}

std::string pickle(const c10::IValue& value) {
  PickleWriter writer;
  writer.put(value);
  return writer.finish();
}

std::string pickle_bytes(std::string_view bytes) {
  PickleWriter writer;
  writer.put_bytes(bytes);
  return writer.finish();
}

c10::IValue unpickle(std::string_view data) { return Unpickler(data, plain_names()).load(); }

}  // namespace cohort::comm
