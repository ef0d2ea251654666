#include "cohort/comm/pickle/pickle_storage.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "cohort/base/pickle_writer.h"
#include "cohort/comm/pickle/pickle.h"
#include "cohort/comm/pickle/unpickle.h"

// Layout: the pickle of a magic number, of 1001, of a description of the machine, of a persistent id
// ("storage", type, key, location, number of elements, None) and of [key]; then the number of elements as int64 and the
// elements, both little endian.
namespace cohort::comm {
namespace {

using c10::IValue;
using namespace base::pickle_opcode;

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

struct Description : torch::CustomClassHolder {
  Description(at::ScalarType d, int64_t n) : dtype(d), num_elements(n) {}
  at::ScalarType dtype;
  int64_t num_elements;
};

void check(bool ok, const char* what) { TORCH_CHECK_VALUE(ok, "cannot unpickle a tensor: ", what); }

UnpicklerNames storage_names() {
  UnpicklerNames names;
  names.check = [](const PythonName& name) {
    TORCH_CHECK_VALUE(find_type(name), "cannot unpickle a tensor: its memory is of the type ", name.module, ".",
                      name.name, ", which is not known");
  };
  names.call = [](const PythonName&, const std::vector<IValue>&) -> IValue {
    check(false, "a storage type is called");
    return {};
  };
  names.load_persistent = [](const IValue& id) {
    check(id.isTuple(), "its persistent id is not a tuple");
    const auto parts = id.toTupleRef().elements().vec();
    const bool regular = parts.size() == 6 && parts[0].isString() && parts[0].toStringRef() == "storage" &&
                         Unpickler::name_of(parts[1]) && parts[4].isInt() && parts[5].isNone();
    check(regular, "its persistent id has another form than Python writes");
    const auto* type = find_type(*Unpickler::name_of(parts[1]));
    return IValue::make_capsule(c10::make_intrusive<Description>(type->dtype, parts[4].toInt()));
  };
  return names;
}

// Reads one pickle from the front of `bytes`.
IValue take_pickle(std::string_view& bytes) {
  Unpickler unpickler(bytes, storage_names());
  auto value = unpickler.load();
  bytes.remove_prefix(unpickler.position());
  return value;
}

void check_machine(const IValue& machine) {
  check(machine.isGenericDict(), "its header has another form than Python writes");
  const auto dict = machine.toGenericDict();
  const auto found = dict.find("little_endian");
  check(found != dict.end() && found->value().isBool() && found->value().toBool(), "it is not little endian");
}

}  // namespace

std::string write_storage(const at::Tensor& flat) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const StorageType& candidate) { return flat.scalar_type() == candidate.dtype; });
  TORCH_CHECK_VALUE(type != std::end(kTypes), "cannot pickle a tensor of dtype ", flat.scalar_type(),
                    "; send it with broadcast or send");
  std::string out(kMagic);
  out += pickle(kVersion);
  c10::impl::GenericDict machine(c10::StringType::get(), c10::AnyType::get());
  machine.insert("protocol_version", kVersion);
  machine.insert("little_endian", true);
  out += pickle(machine);
  base::PickleWriter id;
  id.put(kMark);
  id.put_text("storage");
  id.put_name("torch", type->name);
  id.put_text(kKey);
  id.put_text("cpu");
  id.put_int(flat.numel());
  id.put({kNone, kTuple, kBinPersId});
  out += id.finish();
  out += pickle(c10::List<std::string>({kKey}));
  const int64_t count = flat.numel();
  out.append(reinterpret_cast<const char*>(&count), sizeof count);
  if (count > 0) out.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  return out;
}

at::Tensor read_storage(std::string_view bytes) {
  check(bytes.substr(0, kMagic.size()) == kMagic, "its memory is not in torch.save's older format");
  bytes.remove_prefix(kMagic.size());
  const auto version = take_pickle(bytes);
  check(version.isInt() && version.toInt() == kVersion, "its format version is not 1001");
  check_machine(take_pickle(bytes));
  const auto id = take_pickle(bytes);
  check(id.isCapsule(), "it holds no memory");
  const auto capsule = id.toCapsule();
  const auto* description = dynamic_cast<const Description*>(capsule.get());
  check(description != nullptr, "it holds no memory");
  const auto keys = take_pickle(bytes);
  check(keys.isList() && keys.toList().size() == 1, "it holds other than one memory block");

  int64_t count = 0;
  check(bytes.size() >= sizeof count, "it ends before its elements");
  std::memcpy(&count, bytes.data(), sizeof count);
  bytes.remove_prefix(sizeof count);
  const auto size = static_cast<int64_t>(c10::elementSize(description->dtype));
  check(count == description->num_elements, "its numbers of elements differ");
  check(count >= 0 && count <= static_cast<int64_t>(bytes.size()) / size, "it has fewer elements than it says");
  auto flat = at::empty({count}, description->dtype);
  if (count > 0) std::memcpy(flat.mutable_data_ptr(), bytes.data(), static_cast<size_t>(count * size));
  return flat;
}

}  // namespace cohort::comm
