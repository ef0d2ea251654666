#include "cohort/files/tensors/dcp/pt_checkpoint.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/files/tensors/elements/plain_json.h"
#include "cohort/files/tensors/elements/shown_text.h"

namespace cohort::files {
namespace {

using base::Error;
using base::PickleEntry;
using base::PickleKind;
using base::PickleValue;
using base::Result;

bool is_row_major(const PtTensor& tensor) {
  int64_t step = 1;
  for (size_t dim = tensor.shape.size(); dim-- > 0;) {
    if (tensor.shape[dim] > 1 && tensor.strides[dim] != step) return false;
    step *= std::max<int64_t>(tensor.shape[dim], 1);
  }
  return true;
}

const PickleValue& substituted(const PtFile& file, const PickleValue& value) {
  const auto found = file.plain.find(value.identity());
  return value.identity() != nullptr && found != file.plain.end() ? found->second : value;
}

bool is_dict(const PickleValue& value) {
  return value.is(PickleKind::kDict) || (value.is(PickleKind::kObject) && value.name().module == "collections");
}

// Returns the value with plain dicts for ordered ones, and with constants resolved. `budget` limits the work: shared parts can
// have exponentially many paths.
Result<PickleValue> plain_tree(const PtFile& file, const PickleValue& given, int64_t& budget) {
  if (--budget < 0) return Error("its values refer to each other in more ways than can be listed");
  if (file.tensor(given)) return Error("it has a tensor that is not an entry of a dict or list");
  const PickleValue& value = substituted(file, given);
  std::vector<PickleEntry> entries;
  for (const PickleEntry& entry : value.entries()) {
    Result<PickleValue> item = plain_tree(file, entry.value, budget);
    if (!item) return item;
    entries.push_back({entry.key, std::move(*item)});
  }
  if (is_dict(value)) return PickleValue::dict(std::move(entries));
  if (!value.is(PickleKind::kList) && !value.is(PickleKind::kTuple)) return value;
  std::vector<PickleValue> items;
  for (const PickleValue& part : value.items()) {
    Result<PickleValue> item = plain_tree(file, part, budget);
    if (!item) return item;
    items.push_back(std::move(*item));
  }
  return value.is(PickleKind::kList) ? PickleValue::list(std::move(items)) : PickleValue::tuple(std::move(items));
}

// Flattens a state dict as torch/distributed/checkpoint/_traverse.py does.
class PtFlattener {
 public:
  PtFlattener(const PtFile& file, StoredCheckpoint& checkpoint)
      : file_(file), checkpoint_(checkpoint), budget_(static_cast<int64_t>(file.pickle_size) + 1) {}

  Result<void> add(const PickleValue& given, const std::string& key) {
    if (--budget_ < 0)
      return Error("\"" + checkpoint_.path + "\": its values refer to each other in more ways than can be listed");
    if (const PtTensor* tensor = file_.tensor(given)) return add_tensor(*tensor, key);
    const PickleValue& value = substituted(file_, given);
    if (is_dict(value)) return add_dict(value, key);
    if (value.is(PickleKind::kList) && has_tensors(value)) return add_list(value, key);
    Result<Json> json = plain_json(file_, value);
    json ? static_cast<void>(checkpoint_.values.emplace(key, std::move(*json)))
         : static_cast<void>(checkpoint_.unreadable.emplace(key, json.error().describe()));
    checkpoint_.paths.emplace(key, path_);
    return {};
  }

 private:
  Result<void> add_part(const PickleValue& value, const std::string& key, PathPart part, const std::string& name) {
    path_.push_back(std::move(part));
    Result<void> done = add(value, key.empty() && path_.size() == 1 ? name : key + "." + name);
    path_.pop_back();
    return done;
  }

  Result<void> add_dict(const PickleValue& dict, const std::string& key) {
    for (const PickleEntry& entry : dict.entries()) {
      std::string name(entry.key.text());
      if (entry.key.is(PickleKind::kInt)) name = std::to_string(entry.key.to_int());
      if (!entry.key.is(PickleKind::kInt) && !entry.key.is(PickleKind::kText)) {
        return Error("\"" + checkpoint_.path + "\" has a dict whose keys are neither texts nor ints, in \"" + key +
                     "\"");
      }
      if (Result<void> done = add_part(entry.value, key, name, name); !done) return done;
    }
    return {};
  }

  Result<void> add_list(const PickleValue& list, const std::string& key) {
    for (size_t i = 0; i < list.items().size(); ++i) {
      const auto part = static_cast<int64_t>(i);
      if (Result<void> done = add_part(list.items()[i], key, part, std::to_string(i)); !done) return done;
    }
    return {};
  }

  bool has_tensors(const PickleValue& list) {
    for (const PickleValue& item : list.items()) {
      if (--budget_ < 0) return false;
      if (file_.tensor(item)) return true;
      if (is_dict(substituted(file_, item))) return true;
      if (item.is(PickleKind::kList) && has_tensors(item)) return true;
    }
    return false;
  }

  Result<void> add_tensor(const PtTensor& tensor, const std::string& key) {
    StoredTensor stored{.dtype = tensor.dtype, .shape = tensor.shape};
    Result<StoredChunk> chunk = chunk_of(file_, tensor, whole_region(tensor.shape), 0, 0);
    if (!chunk)
      return Error("\"" + checkpoint_.path + "\": tensor " + quoted_name(key) + " " + chunk.error().message());
    if (num_elements(tensor.shape) > 0) stored.chunks.push_back(std::move(*chunk));
    if (!checkpoint_.tensors.emplace(key, std::move(stored)).second) {
      return Error("\"" + checkpoint_.path + "\": two tensors would have the name " + quoted_name(key));
    }
    checkpoint_.paths.emplace(key, path_);
    return {};
  }

  const PtFile& file_;
  StoredCheckpoint& checkpoint_;
  int64_t budget_;
  std::vector<PathPart> path_;
};

}  // namespace

Result<StoredChunk> chunk_of(const PtFile& description, const PtTensor& tensor, const Region& region, size_t file,
                             uint64_t begin) {
  if (description.is_big_endian) return Error("is in the other byte order");
  if (tensor.is_conjugate || tensor.is_negative) return Error("is a view of conjugates or negatives");
  const uint64_t storage = begin + description.storages[tensor.storage].offset;
  if (!is_row_major(tensor)) {
    return StoredChunk{
        .region = region, .file = file, .offset = storage, .view = std::make_shared<const PtTensor>(tensor)};
  }
  return StoredChunk{.region = region,
                     .file = file,
                     .offset = storage + static_cast<uint64_t>(tensor.offset * info_of(tensor.dtype).size)};
}

Result<Json> plain_json(const PtFile& description, const PickleValue& value) {
  int64_t budget = static_cast<int64_t>(description.pickle_size) + 1;
  Result<PickleValue> plain = plain_tree(description, value, budget);
  return plain ? plain_json(*plain) : Result<Json>(plain.error());
}

Result<StoredCheckpoint> open_pt_checkpoint(const std::string& path) {
  Result<RandomAccessFile> file = RandomAccessFile::open(path);
  if (!file) return file.error();
  Result<PtFile> description = read_pt_file(*file);
  if (!description) return description.error();
  StoredCheckpoint checkpoint{.path = path, .files = {path}};
  Result<void> done = PtFlattener(*description, checkpoint).add(description->root, "");
  return done ? Result<StoredCheckpoint>(std::move(checkpoint)) : Result<StoredCheckpoint>(done.error());
}

}  // namespace cohort::files
