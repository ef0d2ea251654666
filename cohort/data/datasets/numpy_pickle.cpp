#include "cohort/data/datasets/numpy_pickle.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cohort/comm/pickle/pickle.h"
#include "cohort/comm/pickle/pickle_names.h"
#include "cohort/comm/pickle/unpickle.h"

namespace cohort::data::detail {
namespace {

using c10::IValue;
using comm::PythonName;
using Values = std::vector<IValue>;

// What numpy.dtype("u1", ...) and _reconstruct(...) leave until their states come.
struct DtypeHolder : torch::CustomClassHolder {};
struct ArrayHolder : torch::CustomClassHolder {};

template <typename Holder>
bool holds(const IValue& value) {
  if (!value.isCapsule()) return false;
  const auto capsule = value.toCapsule();
  return dynamic_cast<const Holder*>(capsule.get()) != nullptr;
}

template <typename Holder>
IValue make_holder() {
  return IValue::make_capsule(c10::make_intrusive<Holder>());
}

bool is_number(const IValue& value, int64_t number) {
  return (value.isInt() && value.toInt() == number) || (value.isBool() && int64_t{value.toBool()} == number);
}

bool is_text(const IValue& value, const char* text) { return value.isString() && value.toStringRef() == text; }

bool is_numpys(const std::string& module, const char* part) {
  return module == std::string("numpy.core.") + part || module == std::string("numpy._core.") + part;
}

bool is_reconstruct(const PythonName& name) {
  return is_numpys(name.module, "multiarray") && name.name == "_reconstruct";
}
bool is_from_buffer(const PythonName& name) { return is_numpys(name.module, "numeric") && name.name == "_frombuffer"; }
bool is_array_type(const PythonName& name) { return name.module == "numpy" && name.name == "ndarray"; }
bool is_dtype(const PythonName& name) { return name.module == "numpy" && name.name == "dtype"; }
// What Python 3 writes bytes with in protocols 0 to 2.
bool is_encode(const PythonName& name) { return name.module == "_codecs" && name.name == "encode"; }

void check_numpy_name(const PythonName& name) {
  const bool is_known =
      is_reconstruct(name) || is_from_buffer(name) || is_array_type(name) || is_dtype(name) || is_encode(name);
  TORCH_CHECK_VALUE(is_known, "cannot unpickle: it refers to ", name.module, ".", name.name,
                    "; only numbers, texts, lists, dicts and NumPy's arrays are read");
}

[[noreturn]] void refuse(const std::string& what) { TORCH_CHECK_VALUE(false, "cannot unpickle a NumPy array: ", what); }

// A string of Python 2 that happens to be UTF-8 came as str.
std::string_view raw_bytes(const IValue& value) {
  if (value.isString()) return value.toStringRef();
  if (comm::is_bytes(value)) return comm::bytes_of(value);
  refuse("its elements are not bytes");
}

std::vector<int64_t> shape_of(const IValue& value) {
  std::vector<int64_t> shape;
  if (!value.isTuple()) refuse("its shape is not a tuple");
  for (const IValue& size : value.toTupleRef().elements().vec()) {
    if (!size.isInt() || size.toInt() < 1) refuse("a number in its shape is not 1 or larger");
    shape.push_back(size.toInt());
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

IValue call_numpy(const PythonName& name, const Values& arguments) {
  if (is_encode(name)) return comm::plain_names().call(name, arguments);
  if (is_dtype(name)) {
    const bool is_uint8 = arguments.size() == 3 && (is_text(arguments[0], "u1") || is_text(arguments[0], "uint8"));
    if (!is_uint8) refuse("its elements are of another type than uint8");
    return make_holder<DtypeHolder>();
  }
  if (is_reconstruct(name)) {
    const auto* const type = arguments.size() == 3 ? comm::Unpickler::name_of(arguments[0]) : nullptr;
    if (!type || !is_array_type(*type)) refuse("_reconstruct makes something else than an ndarray");
    return make_holder<ArrayHolder>();
  }
  if (is_from_buffer(name)) {
    const bool is_plain = arguments.size() == 4 && holds<DtypeHolder>(arguments[1]) && arguments[3].isString();
    if (!is_plain) refuse("_frombuffer is called with other arguments than NumPy writes");
    return make_array(shape_of(arguments[2]), is_text(arguments[3], "F"), raw_bytes(arguments[0]));
  }
  refuse(c10::str(name.module, ".", name.name, " is called"));
}

// An array's: (1, shape, dtype, is_fortran, bytes). A dtype's says how it lies in memory, where bytes have no choice.
IValue build_numpy(const IValue& object, const IValue& state) {
  if (!state.isTuple()) refuse("a state is not a tuple");
  const Values parts = state.toTupleRef().elements().vec();
  if (holds<DtypeHolder>(object)) {
    const bool is_plain = parts.size() >= 8 && is_number(parts[0], 3) && parts[3].isNone() && parts[4].isNone();
    if (!is_plain) refuse("its elements have parts, or are described in another version of the format than 3");
    return object;
  }
  const bool is_array = holds<ArrayHolder>(object) && parts.size() == 5 && is_number(parts[0], 1) &&
                        holds<DtypeHolder>(parts[2]) && (is_number(parts[3], 0) || is_number(parts[3], 1));
  if (!is_array) refuse("a state is other than NumPy writes");
  return make_array(shape_of(parts[1]), is_number(parts[3], 1), raw_bytes(parts[4]));
}

}  // namespace

IValue unpickle_numpy(std::string_view data) {
  comm::UnpicklerNames names;
  names.check = check_numpy_name;
  names.call = call_numpy;
  names.build = build_numpy;
  names.python2_strings = true;
  return comm::Unpickler(data, std::move(names)).load();
}

}  // namespace cohort::data::detail
