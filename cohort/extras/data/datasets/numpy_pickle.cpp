#include "cohort/extras/data/datasets/numpy_pickle.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cohort/comm/pickle/pickle_converter.h"

namespace cohort::data::detail {
namespace {

using base::PickleKind;
using base::PickleValue;
using base::PythonName;
using c10::IValue;
using Values = std::vector<PickleValue>;

bool is_number(const PickleValue& value, int64_t number) {
  return (value.is(PickleKind::kInt) && value.to_int() == number) ||
         (value.is(PickleKind::kBool) && int64_t{value.to_bool()} == number);
}

bool is_numpys(const std::string& module, const char* part) {
  return module == std::string("numpy.core.") + part || module == std::string("numpy._core.") + part;
}

bool is_reconstruct(const PythonName& name) {
  return is_numpys(name.module, "multiarray") && name.name == "_reconstruct";
}
bool is_from_buffer(const PythonName& name) { return is_numpys(name.module, "numeric") && name.name == "_frombuffer"; }
bool is_array_type(const PythonName& name) { return name.module == "numpy" && name.name == "ndarray"; }
bool is_dtype(const PythonName& name) { return name.module == "numpy" && name.name == "dtype"; }
// Python 3 writes bytes with it in protocols 0 to 2.
bool is_encode(const PythonName& name) { return name.module == "_codecs" && name.name == "encode"; }

std::string refuse_numpy_name(const PythonName& name) {
  const bool is_known =
      is_reconstruct(name) || is_from_buffer(name) || is_array_type(name) || is_dtype(name) || is_encode(name);
  if (is_known) return "";
  return "cannot unpickle: it refers to " + name.text() +
         "; only numbers, texts, lists, dicts and NumPy's arrays are read";
}

[[noreturn]] void refuse(const std::string& what) {
  TORCH_CHECK_VALUE(false, "[cohort] cannot unpickle a NumPy array: ", what);
}

// A string of Python 2 was read as str if it is valid UTF-8.
std::string_view raw_bytes(const PickleValue& value) {
  if (!value.is(PickleKind::kText) && !value.is(PickleKind::kBytes)) refuse("its elements are not bytes");
  return value.text();
}

std::vector<int64_t> shape_of(const PickleValue& value) {
  std::vector<int64_t> shape;
  if (!value.is(PickleKind::kTuple)) refuse("its shape is not a tuple");
  for (const PickleValue& size : value.items()) {
    if (!size.is(PickleKind::kInt) || size.to_int() < 1) refuse("a number in its shape is not 1 or larger");
    shape.push_back(size.to_int());
  }
  if (shape.size() > 8) refuse("it has more than 8 dimensions");
  return shape;
}

at::Tensor make_array(const std::vector<int64_t>& shape, bool is_fortran, std::string_view bytes) {
  uint64_t count = 1;
  for (const int64_t size : shape) {
    if (static_cast<uint64_t>(size) > bytes.size() / count) count = 0;
    if (count == 0) break;
    count *= static_cast<uint64_t>(size);
  }
  if (count != bytes.size()) {
    refuse(c10::str("its shape is ", c10::IntArrayRef(shape), ", but it has ", bytes.size(), " bytes"));
  }
  std::vector<int64_t> in_memory = shape;
  if (is_fortran) std::reverse(in_memory.begin(), in_memory.end());
  at::Tensor array = at::empty(in_memory, at::kByte);
  std::memcpy(array.mutable_data_ptr(), bytes.data(), bytes.size());
  if (!is_fortran) return array;
  std::vector<int64_t> order;
  for (auto i = static_cast<int64_t>(shape.size()); i-- > 0;) order.push_back(i);
  return array.permute(order).contiguous();
}

// numpy.dtype("u1", ...). Its state is about byte order and alignment, which bytes do not have.
bool is_uint8(const PickleValue& value) {
  if (!value.is(PickleKind::kObject) || !is_dtype(value.name())) return false;
  const Values& arguments = value.arguments();
  const bool is_named = arguments.size() == 3 && (arguments[0].is_text("u1") || arguments[0].is_text("uint8"));
  if (!is_named) refuse("its elements are of another type than uint8");
  if (value.object_state().is_none()) return true;
  if (!value.object_state().is(PickleKind::kTuple)) refuse("a state is not a tuple");
  const Values& parts = value.object_state().items();
  const bool is_plain = parts.size() >= 8 && is_number(parts[0], 3) && parts[3].is_none() && parts[4].is_none();
  if (!is_plain) refuse("its elements have parts, or are described in another version of the format than 3");
  return true;
}

at::Tensor from_buffer(const Values& arguments) {
  const bool is_plain = arguments.size() == 4 && is_uint8(arguments[1]) && arguments[3].is(PickleKind::kText);
  if (!is_plain) refuse("_frombuffer is called with other arguments than NumPy writes");
  return make_array(shape_of(arguments[2]), arguments[3].is_text("F"), raw_bytes(arguments[0]));
}

// The state is (1, shape, dtype, is_fortran, bytes).
at::Tensor reconstruct(const PickleValue& object) {
  const Values& arguments = object.arguments();
  const bool is_array =
      arguments.size() == 3 && arguments[0].is(PickleKind::kName) && is_array_type(arguments[0].name());
  if (!is_array) refuse("_reconstruct makes something else than an ndarray");
  if (!object.object_state().is(PickleKind::kTuple)) refuse("a state is not a tuple");
  const Values& parts = object.object_state().items();
  const bool is_plain = parts.size() == 5 && is_number(parts[0], 1) && is_uint8(parts[2]) &&
                        (is_number(parts[3], 0) || is_number(parts[3], 1));
  if (!is_plain) refuse("a state is other than NumPy writes");
  return make_array(shape_of(parts[1]), is_number(parts[3], 1), raw_bytes(parts[4]));
}

IValue make_numpy(const PickleValue& object) {
  if (is_reconstruct(object.name())) return reconstruct(object);
  const bool has_more = !object.object_state().is_none() || !object.items().empty() || !object.entries().empty();
  if (has_more) refuse("a state is other than NumPy writes");
  if (is_from_buffer(object.name())) return from_buffer(object.arguments());
  if (is_dtype(object.name())) is_uint8(object);
  refuse(object.name().text() + " is called");
}

}  // namespace

IValue unpickle_numpy(std::string_view data) {
  const base::PickleRead read =
      comm::read_pickle_or_throw(data, {.refuse_name = refuse_numpy_name, .python2_strings = true, .borrow = true});
  return comm::PickleConverter(make_numpy).convert(read.value);
}

}  // namespace cohort::data::detail
