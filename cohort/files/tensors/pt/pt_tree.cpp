#include "cohort/files/tensors/pt/pt_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "cohort/files/tensors/pt/pt_names.h"

namespace cohort::files {
namespace {

using base::Error;
using base::PickleKind;
using base::PickleValue;
using base::PythonName;
using base::Result;

constexpr size_t kMaxDimensions = 64;  // PyTorch's own limit
constexpr uint64_t kFreeSizes = 1 << 20;

Error odd_arguments(const PythonName& name) {
  return Error(name.text() + " is called with other arguments than Python writes");
}

bool is_natural(const PickleValue& value) { return value.is(PickleKind::kInt) && value.to_int() >= 0; }

// Parses a tuple, or a torch.Size around one.
PickleValue inner_tuple(const PickleValue& value) {
  const bool is_size =
      value.is(PickleKind::kObject) && value.name().is("torch", "Size") && value.arguments().size() == 1;
  return is_size ? value.arguments()[0] : value;
}

bool read_naturals(const PickleValue& value, std::vector<int64_t>* out) {
  const PickleValue tuple = inner_tuple(value);
  if (!tuple.is(PickleKind::kTuple)) return false;
  for (const PickleValue& item : tuple.items()) {
    if (!is_natural(item)) return false;
    out->push_back(item.to_int());
  }
  return true;
}

// Whether all elements are inside `num_elements`, and their numbers fit 64 bits. Zero elements are always inside.
bool lies_in(const PtTensor& tensor, int64_t num_elements) {
  constexpr auto kMax = static_cast<unsigned __int128>(INT64_MAX);
  const auto size = static_cast<unsigned __int128>(info_of(tensor.dtype).size);
  unsigned __int128 count = 1;
  unsigned __int128 last = static_cast<unsigned __int128>(tensor.offset);
  bool is_empty = false;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    const auto length = static_cast<unsigned __int128>(tensor.shape[i]);
    if (length == 0) {
      is_empty = true;
      continue;
    }
    count *= length;
    last += (length - 1) * static_cast<unsigned __int128>(tensor.strides[i]);
    if (count * size > kMax || last > kMax) return false;
  }
  return is_empty ? last <= kMax : last < static_cast<unsigned __int128>(num_elements);
}

// Parses {"conj": True} or {"neg": True}.
bool read_metadata(const PickleValue& value, PtTensor* tensor) {
  if (value.is_none()) return true;
  if (!value.is(PickleKind::kDict)) return false;
  for (const base::PickleEntry& entry : value.entries()) {
    const bool is_known = entry.key.is_text("conj") || entry.key.is_text("neg");
    if (!is_known || !entry.value.is(PickleKind::kBool)) return false;
    (entry.key.is_text("conj") ? tensor->is_conjugate : tensor->is_negative) = entry.value.to_bool();
  }
  return true;
}

template <typename T>
PickleValue number(std::string_view bytes) {
  T value;
  std::copy_n(bytes.begin(), sizeof(T), reinterpret_cast<char*>(&value));
  if constexpr (std::is_floating_point_v<T>) return PickleValue::of_float(static_cast<double>(value));
  return PickleValue::of_int(static_cast<int64_t>(value));
}

struct NumpyRow {
  std::string_view name;
  size_t size;
  PickleValue (*read)(std::string_view);
};

constexpr NumpyRow kNumpyTypes[] = {
    {"f8", 8, number<double>},   {"f4", 4, number<float>},
    {"i8", 8, number<int64_t>},  {"i4", 4, number<int32_t>},
    {"i2", 2, number<int16_t>},  {"i1", 1, number<int8_t>},
    {"u4", 4, number<uint32_t>}, {"u2", 2, number<uint16_t>},
    {"u1", 1, number<uint8_t>},  {"b1", 1, [](std::string_view bytes) { return PickleValue::of_bool(bytes[0] != 0); }},
};

}  // namespace

Result<void> PtTree::read() { return visit(file_.root); }

Result<void> PtTree::visit(const PickleValue& value) {
  if (value.identity() && !seen_.insert(value.identity()).second) return {};
  if (value.is(PickleKind::kObject)) {
    if (auto done = visit_object(value); !done) return done;
  }
  if (value.is(PickleKind::kName)) return visit_name(value);
  if (value.is(PickleKind::kPersistent)) {
    return Error("it has a storage by itself, which C++ cannot represent")
        .with_hint("save the tensor instead of its storage");
  }
  for (const PickleValue& item : value.items()) {
    if (auto done = visit(item); !done) return done;
  }
  for (const base::PickleEntry& entry : value.entries()) {
    if (auto done = visit(entry.key); !done) return done;
    if (auto done = visit(entry.value); !done) return done;
  }
  return {};
}

Result<void> PtTree::visit_name(const PickleValue& value) {
  if (!pt_dtype(value.name())) {
    return Error(fmt::format("it has {} as a value, which C++ cannot represent", value.name().text()));
  }
  file_.plain.emplace(value.identity(), PickleValue::of_text(value.name().text()));
  return {};
}

Result<void> PtTree::visit_object(const PickleValue& object) {
  const PythonName& name = object.name();
  const bool is_dict = name.is("collections", "OrderedDict");
  const bool is_counter = name.is("collections", "Counter");
  if (name.is("argparse", "Namespace")) return read_namespace(object);
  if (is_by_new(object)) return odd_arguments(name);
  if (!object.items().empty() || (!is_dict && !is_counter && !object.entries().empty())) {
    return Error(fmt::format("items are put into what {} makes", name.text()));
  }
  if (!is_dict && !object.object_state().is_none()) return Error(name.text() + " is given a state");
  if (is_counter && object.arguments().size() == 1 && object.arguments()[0].is(PickleKind::kDict)) {
    file_.plain.emplace(object.identity(), object.arguments()[0]);
    return visit(object.arguments()[0]);
  }
  if (is_dict || is_counter) return object.arguments().empty() ? Result<void>() : odd_arguments(name);
  if (name.module == "torch._utils") {
    return name.name.starts_with("_rebuild_tensor") ? read_tensor(object) : read_parameter(object);
  }
  if (name.name == "_rebuild_from_type_v2") return read_from_type(object);
  if (name.is("torch", "Size")) return read_size(object);
  if (name.is("torch", "device")) return read_device(object);
  if (is_numpy_scalar(name)) return read_numpy_scalar(object);
  return Error(fmt::format("it has a value made by {}, which C++ cannot represent", name.text()));
}

// Parses ("storage", type, key, device, number of elements); in older files also None, or (key, offset, number of elements) of a
// view.
Result<void> PtTree::read_storage(const PickleValue& value, PtTensor* tensor, int64_t* view_size) {
  const Error odd("a tensor's storage has another id than Python writes");
  const auto& id = value.id().items();
  const bool is_legacy = file_.format == PtFormat::kLegacy;
  const bool is_plain = value.is(PickleKind::kPersistent) && id.size() == (is_legacy ? 6 : 5) &&
                        id[0].is_text("storage") && id[1].is(PickleKind::kName) && id[2].is(PickleKind::kText) &&
                        id[3].is(PickleKind::kText) && is_natural(id[4]);
  const auto dtype = is_plain ? pt_storage_dtype(id[1].name()) : std::nullopt;
  if (!dtype) return odd;
  const int64_t element_size = info_of(*dtype).size;
  if (id[4].to_int() > INT64_MAX / element_size) return odd;
  const auto num_bytes = static_cast<uint64_t>(id[4].to_int() * element_size);
  const auto [place, is_new] = keys_.try_emplace(std::string(id[2].text()), file_.storages.size());
  if (is_new) {
    PtStorage storage{.key = place->first,
                      .dtype = *dtype,
                      .element_dtype = *dtype,
                      .device = std::string(id[3].text()),
                      .num_bytes = num_bytes};
    if (auto done = locate_(&storage); !done) return done;
    file_.storages.push_back(std::move(storage));
  } else if (file_.storages[place->second].num_bytes != num_bytes) {
    return Error(fmt::format("its storage \"{}\" has {} bytes in one place and {} in another", place->first,
                             file_.storages[place->second].num_bytes, num_bytes));
  }
  tensor->storage = place->second;
  tensor->dtype = *dtype;
  *view_size = id[4].to_int();
  if (!is_legacy || id[5].is_none()) return {};
  const auto& view = id[5].items();
  const bool is_view = view.size() == 3 && is_natural(view[1]) && is_natural(view[2]) &&
                       view[1].to_int() <= *view_size && view[2].to_int() <= *view_size - view[1].to_int();
  if (!is_view) return odd;
  tensor->offset = view[1].to_int();
  *view_size = view[2].to_int();
  return {};
}

// Parses (storage, offset, shape, strides[, requires_grad, hooks[, dtype, in _v3 alone][, metadata]]).
Result<void> PtTree::read_tensor(const PickleValue& object) {
  const PythonName& name = object.name();
  const auto& a = object.arguments();
  const bool has_dtype = name.name == "_rebuild_tensor_v3";
  const size_t num_plain = name.name == "_rebuild_tensor" ? 4 : has_dtype ? 7 : 6;
  if (a.size() < num_plain || a.size() > (num_plain == 4 ? 4 : num_plain + 1)) return odd_arguments(name);
  PtTensor tensor;
  int64_t view_size = 0;
  if (auto done = read_storage(a[0], &tensor, &view_size); !done) return done;
  const bool is_plain = is_natural(a[1]) && read_naturals(a[2], &tensor.shape) &&
                        read_naturals(a[3], &tensor.strides) && tensor.shape.size() == tensor.strides.size() &&
                        (num_plain == 4 || a[4].is(PickleKind::kBool)) &&
                        (a.size() == num_plain || read_metadata(a[num_plain], &tensor));
  if (!is_plain) return odd_arguments(name);
  // Tensors that share a tuple of arguments need little space in the file, so their memory here is limited.
  num_sizes_ += tensor.shape.size();
  if (tensor.shape.size() > kMaxDimensions || num_sizes_ > kFreeSizes + file_.pickle_size) {
    return Error("its tensors have more dimensions than a file of its size can have");
  }
  if (has_dtype) {
    const auto dtype = a[6].is(PickleKind::kName) ? pt_dtype(a[6].name()) : std::nullopt;
    if (!dtype) return odd_arguments(name);
    view_size = view_size * info_of(tensor.dtype).size / info_of(*dtype).size;
    tensor.dtype = *dtype;
    file_.storages[tensor.storage].element_dtype = *dtype;
  }
  tensor.requires_grad = num_plain > 4 && a[4].to_bool();
  const int64_t view_offset = tensor.offset;
  tensor.offset = a[1].to_int();
  if (!lies_in(tensor, view_size)) {
    return Error(fmt::format("a tensor does not lie in its storage \"{}\", which has {} elements",
                             file_.storages[tensor.storage].key, view_size));
  }
  tensor.offset += view_offset;
  file_.tensors.emplace(object.identity(), std::move(tensor));
  return {};
}

Result<PtTensor> PtTree::inner_tensor(const PickleValue& value) {
  if (!value.is(PickleKind::kObject)) return Error("a parameter is made from something that is not a tensor");
  if (auto done = visit(value); !done) return done.error();
  const PtTensor* found = file_.tensor(value);
  if (!found) return Error("a parameter is made from something that is not a tensor");
  return *found;
}

// Parses (tensor, requires_grad, hooks[, state]).
Result<void> PtTree::read_parameter(const PickleValue& object) {
  const auto& arguments = object.arguments();
  const size_t count = object.name().name == "_rebuild_parameter" ? 3 : 4;
  if (arguments.size() != count || !arguments[1].is(PickleKind::kBool)) return odd_arguments(object.name());
  auto tensor = inner_tensor(arguments[0]);
  if (!tensor) return tensor.error();
  tensor->requires_grad = arguments[1].to_bool();
  tensor->is_parameter = true;
  file_.tensors.emplace(object.identity(), std::move(*tensor));
  return {};
}

// Parses (function, class, its arguments, state): a tensor with attributes, which are dropped.
Result<void> PtTree::read_from_type(const PickleValue& object) {
  const auto& arguments = object.arguments();
  const bool is_plain = arguments.size() == 4 && arguments[0].is(PickleKind::kName) &&
                        arguments[1].is(PickleKind::kName) && arguments[2].is(PickleKind::kTuple) &&
                        arguments[0].name().module == "torch._utils";
  if (!is_plain) return odd_arguments(object.name());
  const PickleValue made = PickleValue::object(arguments[0].name(), arguments[2].items());
  if (auto done = visit_object(made); !done) return done;
  auto node = file_.tensors.extract(made.identity());
  if (node.empty()) return odd_arguments(object.name());
  node.mapped().is_parameter |= arguments[1].name().name == "Parameter";
  node.key() = object.identity();
  file_.tensors.insert(std::move(node));
  return {};
}

// Parses the command line of a training program, which many keep in their checkpoints, as the dict of its attributes.
Result<void> PtTree::read_namespace(const PickleValue& object) {
  const PickleValue& state = object.object_state();
  const bool is_plain = is_by_new(object) && object.arguments().empty() && object.items().empty() &&
                        object.entries().empty() && (state.is(PickleKind::kDict) || state.is_none());
  if (!is_plain) return odd_arguments(object.name());
  file_.plain.emplace(object.identity(), state.is_none() ? PickleValue::dict({}) : state);
  return visit(state);
}

Result<void> PtTree::read_size(const PickleValue& object) {
  std::vector<int64_t> sizes;
  if (!read_naturals(object, &sizes)) return odd_arguments(object.name());
  file_.plain.emplace(object.identity(), object.arguments()[0]);
  return {};
}

// Parses ("cuda", 1) as the text "cuda:1".
Result<void> PtTree::read_device(const PickleValue& object) {
  const auto& arguments = object.arguments();
  const bool is_plain = (arguments.size() == 1 || (arguments.size() == 2 && is_natural(arguments[1]))) &&
                        arguments[0].is(PickleKind::kText);
  if (!is_plain) return odd_arguments(object.name());
  std::string text(arguments[0].text());
  if (arguments.size() == 2) text += ":" + std::to_string(arguments[1].to_int());
  file_.plain.emplace(object.identity(), PickleValue::of_text(std::move(text)));
  return {};
}

// Parses (numpy.dtype("f8", False, True), bytes).
Result<void> PtTree::read_numpy_scalar(const PickleValue& object) {
  const auto& arguments = object.arguments();
  const bool is_plain = arguments.size() == 2 && arguments[0].is(PickleKind::kObject) &&
                        arguments[0].name().is("numpy", "dtype") && !arguments[0].arguments().empty();
  if (!is_plain) return odd_arguments(object.name());
  const auto& state = arguments[0].object_state().items();
  const bool is_big = state.size() > 1 && state[1].is_text(">");
  for (const NumpyRow& row : kNumpyTypes) {
    const bool fits =
        arguments[0].arguments()[0].is_text(row.name) && arguments[1].text().size() == row.size && !is_big;
    if (!fits) continue;
    file_.plain.emplace(object.identity(), row.read(arguments[1].text()));
    return {};
  }
  return Error("it holds a NumPy scalar that is neither an int, a float nor a bool of this machine's byte order");
}

}  // namespace cohort::files
