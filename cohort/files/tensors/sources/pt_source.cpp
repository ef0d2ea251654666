#include "cohort/files/tensors/sources/pt_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/files/tensors/elements/byte_order.h"
#include "cohort/files/tensors/pt/pt_file.h"
#include "cohort/files/tensors/pt/strided_reader.h"

namespace cohort::files {
namespace {

using base::Error;
using base::PickleKind;
using base::PickleValue;
using base::Result;

std::string key_text(const PickleValue& key) {
  switch (key.kind()) {
    case PickleKind::kText:
      return std::string(key.text());
    case PickleKind::kInt:
      return std::to_string(key.to_int());
    case PickleKind::kBool:
      return key.to_bool() ? "True" : "False";
    case PickleKind::kFloat:
      return fmt::format("{}", key.to_float());
    default:
      return fmt::format("{}+{}j", key.is(PickleKind::kComplex) ? key.to_complex().real() : 0.0,
                         key.is(PickleKind::kComplex) ? key.to_complex().imag() : 0.0);
  }
}

class PtSource : public TensorSource {
 public:
  PtSource(RandomAccessFile file, PtFile description)
      : TensorSource(file.path(), description.format == PtFormat::kZip ? "PyTorch zip" : "PyTorch legacy"),
        file_(std::move(file)),
        description_(std::move(description)) {
    contents_.metadata = {{"byte_order", description_.is_big_endian ? "big" : "little"},
                          {"num_storages", std::to_string(description_.storages.size())}};
  }

  /// Names everything in the tree.
  Result<void> list() { return list(description_.root, ""); }

  Result<void> read(size_t index, uint64_t first_byte, std::span<char> to) const override {
    const PtTensor& tensor = *tensors_[index];
    if (tensor.is_conjugate || tensor.is_negative) {
      return Error(
                 fmt::format(
                     "tensor \"{}\" of \"{}\" is a view of conjugates or negatives, whose elements are not in the file",
                     tensors()[index].name, path()))
          .with_hint("save tensor.resolve_conj().resolve_neg() instead");
    }
    const auto size = static_cast<uint64_t>(info_of(tensor.dtype).size);
    const uint64_t storage = description_.storages[tensor.storage].offset;
    if (!description_.is_big_endian) return read_strided(file_, storage, tensor, first_byte, to);
    // Reads complete elements, because their bytes are reversed.
    const uint64_t skip = first_byte % size;
    std::string whole((skip + to.size() + size - 1) / size * size, '\0');
    auto done = read_strided(file_, storage, tensor, first_byte - skip, whole);
    if (!done) return done;
    swap_byte_order(whole, tensor.dtype);
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(skip), to.size(), to.begin());
    return {};
  }

 private:
  // Limits the work, because a tree with shared parts has many paths.
  Result<void> check_room(const std::string& name) {
    num_entries_ += 1;
    num_name_bytes_ += name.size();
    const uint64_t pickle = description_.pickle_size;
    if (num_entries_ <= pickle && num_name_bytes_ <= (uint64_t{16} << 20) + 64 * pickle) return {};
    return Error(
        fmt::format("cannot list \"{}\": its values refer to each other in more ways than can be listed", path()));
  }

  Result<void> list(const PickleValue& value, const std::string& name) {
    if (auto done = check_room(name); !done) return done;
    if (const PtTensor* tensor = description_.tensor(value)) {
      tensors_.push_back(tensor);
      contents_.tensors.push_back({name, tensor->dtype, tensor->shape});
      return {};
    }
    if (const auto plain = description_.plain.find(value.identity()); plain != description_.plain.end()) {
      return list(plain->second, name);
    }
    const std::string prefix = name.empty() ? "" : name + ".";
    for (const base::PickleEntry& entry : value.entries()) {
      if (auto done = list(entry.value, prefix + key_text(entry.key)); !done) return done;
    }
    for (size_t i = 0; i < value.items().size(); ++i) {
      if (auto done = list(value.items()[i], prefix + std::to_string(i)); !done) return done;
    }
    if (value.entries().empty() && value.items().empty()) contents_.values.push_back({name, value});
    return {};
  }

  RandomAccessFile file_;
  PtFile description_;
  std::vector<const PtTensor*> tensors_;
  uint64_t num_entries_ = 0;
  uint64_t num_name_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<TensorSource>> open_pt_file(const RandomAccessFile& file) {
  auto description = read_pt_file(file);
  if (!description) return description.error();
  auto source = std::make_unique<PtSource>(file, std::move(*description));
  if (auto done = source->list(); !done) return done.error();
  return std::unique_ptr<TensorSource>(std::move(source));
}

Result<std::unique_ptr<TensorSource>> open_pt_file(const std::string& path) {
  auto file = RandomAccessFile::open(path);
  if (!file) return file.error();
  return open_pt_file(*file);
}

}  // namespace cohort::files
