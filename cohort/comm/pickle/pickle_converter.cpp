#include "cohort/comm/pickle/pickle_converter.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/base/pickle/pickle_writer.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/pickle/pickle.h"

namespace cohort::comm {
namespace {

using base::PickleKind;
using base::PickleValue;
using c10::IValue;

// Returns the type of a list of such items; Any for values without a single type.
c10::TypePtr item_type(const IValue& value) {
  if (value.isTensor()) return c10::TensorType::get();
  if (value.isInt() || value.isDouble() || value.isBool() || value.isString() || value.isComplexDouble()) {
    return value.type();
  }
  if (value.isList()) return c10::ListType::create(value.toList().elementType());
  return c10::AnyType::get();
}

c10::TypePtr common_type(bool first, const c10::TypePtr& so_far, const IValue& value) {
  auto type = item_type(value);
  return first || *type == *so_far ? type : c10::TypePtr(c10::AnyType::get());
}

}  // namespace

IValue PickleConverter::convert_list(const std::vector<PickleValue>& items) {
  c10::impl::GenericList list(c10::AnyType::get());
  list.reserve(items.size());
  for (const PickleValue& item : items) {
    IValue value = convert(item);
    list.unsafeSetElementType(common_type(list.empty(), list.elementType(), value));
    list.push_back(std::move(value));
  }
  return list;
}

IValue PickleConverter::convert_entries(const PickleValue& object) {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  for (const base::PickleEntry& entry : object.entries()) {
    IValue key = convert(entry.key);
    IValue value = convert(entry.value);
    dict.unsafeSetKeyType(common_type(dict.empty(), dict.keyType(), key));
    dict.unsafeSetValueType(common_type(dict.empty(), dict.valueType(), value));
    dict.insert_or_assign(std::move(key), std::move(value));
  }
  return dict;
}

IValue PickleConverter::convert_new(const PickleValue& value) {
  switch (value.kind()) {
    case PickleKind::kNone:
      return {};
    case PickleKind::kBool:
      return value.to_bool();
    case PickleKind::kInt:
      return value.to_int();
    case PickleKind::kFloat:
      return value.to_float();
    case PickleKind::kComplex:
      return c10::complex<double>(value.to_complex());
    case PickleKind::kText:
      return std::string(value.text());
    case PickleKind::kBytes:
      return bytes_value(std::string(value.text()));
    case PickleKind::kList:
      return convert_list(value.items());
    case PickleKind::kTuple: {
      std::vector<IValue> items;
      for (const PickleValue& item : value.items()) items.push_back(convert(item));
      return c10::ivalue::Tuple::create(std::move(items));
    }
    case PickleKind::kDict:
      return convert_entries(value);
    default:
      return make_(value);
  }
}

IValue PickleConverter::convert(const PickleValue& value) {
  const void* const identity = value.identity();
  if (!identity) return convert_new(value);
  const auto known = made_.find(identity);
  if (known != made_.end()) return known->second;
  IValue made = convert_new(value);
  made_.emplace(identity, made);
  return made;
}

base::PickleRead read_pickle_or_throw(std::string_view data, const base::PickleReaderOptions& options) {
  return or_throw_value(base::read_pickle(data, options));
}

std::string write_pickle_or_throw(const PickleValue& value) { return or_throw_value(base::write_pickle(value, 4)); }

bool is_sizes(const PickleValue& value) {
  return value.is(PickleKind::kTuple) &&
         std::all_of(value.items().begin(), value.items().end(),
                     [](const PickleValue& item) { return item.is(PickleKind::kInt) && item.to_int() >= 0; });
}

std::vector<int64_t> to_sizes(const PickleValue& tuple) {
  std::vector<int64_t> result;
  for (const PickleValue& item : tuple.items()) result.push_back(item.to_int());
  return result;
}

}  // namespace cohort::comm
