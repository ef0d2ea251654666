#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/disk_space.h"
#include "cohort/files/tensors/dcp/dcp_folder.h"
#include "cohort/files/tensors/dcp/tensor_bytes.h"
#include "cohort/files/tensors/elements/plain_json.h"
#include "cohort/files/tensors/elements/shown_text.h"
#include "cohort/files/tensors/safetensors/safetensors_file.h"

namespace cohort::files {
namespace {

using base::Error;
using base::PickleEntry;
using base::PickleValue;
using base::Result;

constexpr uint64_t kCopyBytes = uint64_t{4} << 20;

// Nested dicts and lists, built from keys and their positions.
class Tree {
 public:
  void put(const std::vector<PathPart>& path, PickleValue value) {
    Tree* place = this;
    for (const PathPart& part : path) {
      const auto [found, is_new] = place->index_.try_emplace(part, place->parts_.size());
      if (is_new) place->parts_.emplace_back(part, std::make_unique<Tree>());
      place = place->parts_[found->second].second.get();
    }
    place->value_ = std::move(value);
  }

  PickleValue build() const {
    if (parts_.empty()) return value_;
    const bool is_list =
        std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part.first.index() == 1; });
    std::vector<std::pair<PathPart, const Tree*>> sorted;
    for (const auto& [part, tree] : parts_) sorted.emplace_back(part, tree.get());
    if (is_list) std::sort(sorted.begin(), sorted.end());
    std::vector<PickleValue> items;
    std::vector<PickleEntry> entries;
    for (const auto& [part, tree] : sorted) {
      if (is_list) {
        items.push_back(tree->build());
      } else {
        const auto* text = std::get_if<std::string>(&part);
        entries.push_back(
            {text ? PickleValue::of_text(*text) : PickleValue::of_int(std::get<int64_t>(part)), tree->build()});
      }
    }
    return is_list ? PickleValue::list(std::move(items)) : PickleValue::dict(std::move(entries));
  }

 private:
  std::vector<std::pair<PathPart, std::unique_ptr<Tree>>> parts_;
  std::map<PathPart, size_t> index_;  ///< index in parts_
  PickleValue value_;
};

std::vector<PathPart> path_in(const StoredCheckpoint& checkpoint, const std::string& key) {
  const auto found = checkpoint.paths.find(key);
  return found == checkpoint.paths.end() ? std::vector<PathPart>{key} : found->second;
}

Result<void> write_pt(const StoredCheckpoint& checkpoint, const std::string& file) {
  Tree tree;
  const TensorBytes bytes(checkpoint);
  std::vector<StorageBytes> storages;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    const std::string number = std::to_string(storages.size());
    tree.put(path_in(checkpoint, key), pt_tensor({.key = number, .dtype = tensor.dtype, .shape = tensor.shape}));
    Result<StorageBytes> storage = bytes.of(key, tensor);
    if (!storage) return storage.error();
    storages.push_back(std::move(*storage));
  }
  for (const auto& [key, json] : checkpoint.values) {
    Result<PickleValue> value = plain_value(json);
    if (!value) return Error("value " + quoted_name(key)).caused_by(value.error());
    tree.put(path_in(checkpoint, key), std::move(*value));
  }
  return write_pt_file(file, tree.build(), storages);
}

Result<void> write_safetensors(const StoredCheckpoint& checkpoint, const std::string& file) {
  SafetensorsHeader header{.metadata = checkpoint.metadata};
  header.metadata.emplace("format", "pt");
  for (const auto& [key, tensor] : checkpoint.tensors) header.entries.push_back({key, tensor.dtype, tensor.shape});
  if (!checkpoint.values.empty()) header.metadata[kValuesMetadata] = Json(checkpoint.values).dump();
  const std::vector<size_t> order = place_entries(header.entries);
  Result<std::string> prefix = safetensors_prefix(header);
  if (!prefix) return prefix.error();
  Result<base::AtomicFile> to = base::AtomicFile::create(file);
  if (!to) return to.error();
  if (Result<void> done = to->write(*prefix); !done) return done;
  CheckpointReader reader(checkpoint);
  std::string buffer;
  for (const size_t index : order) {
    const SafetensorsEntry& entry = header.entries[index];
    const StoredTensor& tensor = checkpoint.tensors.at(entry.name);
    for (uint64_t first = 0; first < entry.end - entry.begin; first += buffer.size()) {
      buffer.resize(std::min(kCopyBytes, entry.end - entry.begin - first));
      Result<void> done = read_tensor_bytes(reader, entry.name, tensor, first, buffer);
      if (done) done = to->write(buffer);
      if (!done) return done;
    }
  }
  return to->commit();
}

}  // namespace

Result<void> read_tensor_bytes(CheckpointReader& reader, const std::string& key, const StoredTensor& tensor,
                               uint64_t first, std::span<char> to) {
  const auto size = static_cast<uint64_t>(info_of(tensor.dtype).size);
  auto begin = static_cast<int64_t>(first / size);
  const auto end = static_cast<int64_t>((first + to.size() + size - 1) / size);
  std::string whole(static_cast<size_t>(end - begin) * size, '\0');
  // Elements [begin, end) are a sequence of boxes: one for each dimension that they begin or end in the middle of.
  for (char* place = whole.data(); begin < end;) {
    std::vector<int64_t> offsets(tensor.shape.size(), 0);
    std::vector<int64_t> lengths(tensor.shape.size(), 1);
    int64_t step = num_elements(tensor.shape);
    int64_t rest = begin;
    int64_t count = 1;
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
      step /= tensor.shape[dim];
      offsets[dim] = rest / step;
      rest %= step;
      if (rest != 0 || end - begin < step) continue;
      // From here on complete: as many as there are, up to the end of this dimension.
      lengths[dim] = std::min(tensor.shape[dim] - offsets[dim], (end - begin) / step);
      count = lengths[dim] * step;
      for (size_t inner = dim + 1; inner < tensor.shape.size(); ++inner) lengths[inner] = tensor.shape[inner];
      break;
    }
    Result<void> done = reader.read(key, box_region(offsets, lengths), place, false);
    if (!done) return done;
    place += count * static_cast<int64_t>(size);
    begin += count;
  }
  std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(first % size), to.size(), to.begin());
  return {};
}

Result<StorageBytes> TensorBytes::of(const std::string& key, const StoredTensor& tensor) const {
  const auto num_bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!num_bytes) return Error("tensor " + quoted_name(key) + " is larger than any memory");
  auto read = [reader = reader_, mutex = mutex_, key, &tensor](uint64_t first, std::span<char> to) {
    const std::lock_guard lock(*mutex);
    return read_tensor_bytes(*reader, key, tensor, first, to);
  };
  return StorageBytes{.read = std::move(read), .size = *num_bytes};
}

Result<void> all_readable(const StoredCheckpoint& checkpoint) {
  if (checkpoint.unreadable.empty()) return {};
  const auto& [key, reason] = *checkpoint.unreadable.begin();
  return Error("the value " + quoted_name(key) + " cannot be read: " + reason);
}

Result<void> consolidate(const StoredCheckpoint& checkpoint, const std::string& file) {
  if (Result<void> known = all_readable(checkpoint); !known) return known;
  const std::string folder = std::filesystem::path(file).parent_path().string();
  if (Result<void> fits = base::check_space(folder, checkpoint.num_bytes(), '"' + file + '"'); !fits) return fits;
  const bool is_pt = file.ends_with(".pt") || file.ends_with(".pth") || file.ends_with(".bin");
  return is_pt ? write_pt(checkpoint, file) : write_safetensors(checkpoint, file);
}

Result<void> consolidate_pt(const StoredCheckpoint& checkpoint, const std::string& file) {
  Result<void> known = all_readable(checkpoint);
  return known ? write_pt(checkpoint, file) : known;
}

}  // namespace cohort::files
