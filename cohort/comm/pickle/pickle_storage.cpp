#include "cohort/comm/pickle/pickle_storage.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "cohort/comm/pickle/pickle_converter.h"

// Layout: a pickle each of a magic number, of 1001, of a description of the machine, of a persistent id
// ("storage", type, key, location, number of elements, None) and of [key]; then the number of elements as int64 and the
// elements, both little endian.
namespace cohort::comm {
namespace {

using base::PickleKind;
using base::PickleValue;
using base::PythonName;

constexpr std::string_view kMagic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 15);
constexpr int64_t kVersion = 1001;
constexpr const char* kKey = "0";

struct StorageType {
  const char* name;
  at::ScalarType dtype;
};

constexpr StorageType kTypes[] = {
    {"FloatStorage", at::kFloat},
    {"DoubleStorage", at::kDouble},
    {"HalfStorage", at::kHalf},
    {"BFloat16Storage", at::kBFloat16},
    {"LongStorage", at::kLong},
    {"IntStorage", at::kInt},
    {"ShortStorage", at::kShort},
    {"CharStorage", at::kChar},
    {"ByteStorage", at::kByte},
    {"BoolStorage", at::kBool},
    {"ComplexFloatStorage", at::kComplexFloat},
    {"ComplexDoubleStorage", at::kComplexDouble},
};

const StorageType* find_type(const PythonName& name) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const StorageType& candidate) { return name.name == candidate.name; });
  return name.module == "torch" && type != std::end(kTypes) ? type : nullptr;
}

void check(bool ok, const char* what) { TORCH_CHECK_VALUE(ok, "[cohort] cannot unpickle a tensor: ", what); }

std::string refuse_storage_name(const PythonName& name) {
  if (find_type(name)) return "";
  return "cannot unpickle a tensor: its memory is of the type " + name.text() + ", which is not known";
}

// Reads one pickle from the front of `bytes`.
PickleValue take_pickle(std::string_view& bytes) {
  const base::PickleRead read =
      read_pickle_or_throw(bytes, {.refuse_name = refuse_storage_name, .persistent_ids = true, .borrow = true});
  bytes.remove_prefix(read.end);
  return read.value;
}

void check_machine(const PickleValue& machine) {
  check(machine.is(PickleKind::kDict), "its header has another form than Python writes");
  const PickleValue* little = machine.find("little_endian");
  check(little && little->is(PickleKind::kBool) && little->to_bool(), "it is not little endian");
}

struct Description {
  at::ScalarType dtype;
  int64_t num_elements;
};

Description read_description(const PickleValue& value) {
  check(value.is(PickleKind::kPersistent), "it holds no memory");
  check(value.id().is(PickleKind::kTuple), "its persistent id is not a tuple");
  const auto& parts = value.id().items();
  const bool regular = parts.size() == 6 && parts[0].is_text("storage") && parts[1].is(PickleKind::kName) &&
                       parts[4].is(PickleKind::kInt) && parts[5].is_none();
  check(regular, "its persistent id has another form than Python writes");
  return {find_type(parts[1].name())->dtype, parts[4].to_int()};
}

}  // namespace

std::string write_storage(const at::Tensor& flat) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const StorageType& candidate) { return flat.scalar_type() == candidate.dtype; });
  TORCH_CHECK_VALUE(type != std::end(kTypes), "[cohort] cannot pickle a tensor of dtype ", flat.scalar_type(),
                    "; send it with broadcast or send");
  const int64_t count = flat.numel();
  const auto text = [](const char* words) { return PickleValue::of_text(words); };
  std::string out(kMagic);
  for (const auto& value : {PickleValue::of_int(kVersion),
                            PickleValue::dict({{text("protocol_version"), PickleValue::of_int(kVersion)},
                                               {text("little_endian"), PickleValue::of_bool(true)}}),
                            PickleValue::persistent(PickleValue::tuple(
                                {text("storage"), PickleValue::of_name("torch", type->name), text(kKey), text("cpu"),
                                 PickleValue::of_int(count), PickleValue()})),
                            PickleValue::list({text(kKey)})}) {
    out += write_pickle_or_throw(value);
  }
  out.append(reinterpret_cast<const char*>(&count), sizeof count);
  if (count > 0) out.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  return out;
}

at::Tensor read_storage(std::string_view bytes) {
  check(bytes.substr(0, kMagic.size()) == kMagic, "its memory is not in torch.save's older format");
  bytes.remove_prefix(kMagic.size());
  const PickleValue version = take_pickle(bytes);
  check(version.is(PickleKind::kInt) && version.to_int() == kVersion, "its format version is not 1001");
  check_machine(take_pickle(bytes));
  const Description description = read_description(take_pickle(bytes));
  const PickleValue keys = take_pickle(bytes);
  check(keys.is(PickleKind::kList) && keys.items().size() == 1, "it holds other than one memory block");

  int64_t count = 0;
  check(bytes.size() >= sizeof count, "it ends before its elements");
  std::memcpy(&count, bytes.data(), sizeof count);
  bytes.remove_prefix(sizeof count);
  const auto size = static_cast<int64_t>(c10::elementSize(description.dtype));
  check(count == description.num_elements, "its numbers of elements differ");
  check(count >= 0 && count <= static_cast<int64_t>(bytes.size()) / size, "it has fewer elements than it says");
  auto flat = at::empty({count}, description.dtype);
  if (count > 0) std::memcpy(flat.mutable_data_ptr(), bytes.data(), static_cast<size_t>(count * size));
  return flat;
}

}  // namespace cohort::comm
