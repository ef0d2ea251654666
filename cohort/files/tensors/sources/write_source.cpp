#include "cohort/files/tensors/sources/write_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/disk_space.h"
#include "cohort/base/numbers/count.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/elements/plain_json.h"
#include "cohort/files/tensors/plan/save_plan.h"
#include "cohort/files/tensors/plan/shard_files.h"
#include "cohort/files/tensors/pt/pt_writer.h"
#include "cohort/files/tensors/safetensors/safetensors_file.h"
#include "cohort/files/tensors/sources/tensor_pieces.h"

namespace cohort::files {
namespace {

base::Error cannot_write(const std::string& path, base::Error cause) {
  return base::Error(fmt::format("cannot write \"{}\"", path)).caused_by(std::move(cause));
}

// Checks the size first: a view may repeat its elements very often, at the cost of a few bytes in its file.
base::Result<void> check_space(const TensorSource& source, const std::string& folder, const std::string& path) {
  uint64_t num_bytes = 0;
  for (const TensorInfo& tensor : source.tensors()) {
    num_bytes = base::add_capped<uint64_t>(num_bytes, static_cast<uint64_t>(tensor.num_bytes()));
  }
  return base::check_space(folder, num_bytes, '"' + path + '"');
}

base::Result<void> check_space_for_file(const TensorSource& source, const std::string& path) {
  return check_space(source, std::filesystem::path(path).parent_path().string(), path);
}

// Drops a .pt file's description of itself, which means nothing in another file.
std::map<std::string, std::string> kept_metadata(const TensorSource& source) {
  return source.format().starts_with("PyTorch") ? std::map<std::string, std::string>() : source.contents().metadata;
}

base::Result<Json> json_of_values(const TensorSource& source) {
  Json values = Json::object();
  for (const PlainEntry& entry : source.contents().values) {
    auto json = plain_json(entry.value);
    if (!json) return json.error();
    values[entry.name] = std::move(*json);
  }
  return values;
}

base::Result<void> write_safetensors_to(const TensorSource& source, base::AtomicFile& file) {
  SafetensorsHeader header{.entries = {}, .metadata = kept_metadata(source)};
  for (const TensorInfo& tensor : source.tensors()) {
    header.entries.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  const auto values = json_of_values(source);
  if (!values) return values.error();
  if (!values->empty()) header.metadata[kValuesMetadata] = values->dump();
  const auto order = place_entries(header.entries);
  const auto prefix = safetensors_prefix(header);
  if (!prefix) return prefix.error();
  if (auto written = file.write(*prefix); !written) return written;
  for (const size_t tensor : order) {
    const auto copied =
        for_each_piece(source, tensor, [&](std::string_view bytes, uint64_t) { return file.write(bytes); });
    if (!copied) return copied;
  }
  return file.commit();
}

std::vector<SaveItem> items_of(const TensorSource& source) {
  std::vector<SaveItem> items;
  for (const TensorInfo& tensor : source.tensors()) {
    items.push_back(
        {.key = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .region = whole_region(tensor.shape)});
  }
  return items;
}

base::Result<std::vector<uint32_t>> write_pieces(const TensorSource& source, const std::string& folder,
                                                 const std::vector<SaveItem>& items, const SavePlan& plan) {
  std::vector<std::string> names;
  for (const PlannedFile& file : plan.files) names.push_back(file.name);
  PieceWriter writer(folder, names, /*sync=*/true);
  std::vector<uint32_t> checksums;
  std::vector<char> data;
  for (const PlannedWrite& place : plan.writes.front()) {
    data.resize(static_cast<size_t>(source.tensors()[place.item].num_bytes()));
    if (auto read = source.read(place.item, 0, data); !read) return read.error();
    const auto checksum = writer.write(place, items[place.item], data.data());
    if (!checksum) return checksum.error();
    checksums.push_back(*checksum);
  }
  if (auto done = writer.finish(); !done) return done.error();
  return checksums;
}

base::Result<void> write_folder(const TensorSource& source, const std::string& folder) {
  std::vector<SaveItem> items = items_of(source);
  const auto values = json_of_values(source);
  if (!values) return values.error();
  for (const auto& [name, json] : values->items()) items.push_back({.key = name, .is_tensor = false, .value = json});
  ShardFiles files(folder, /*sync=*/true);
  if (auto prepared = files.prepare(/*overwrite=*/true); !prepared) return prepared;
  const std::vector<std::vector<SaveItem>> all{items};
  auto plan = plan_save(all, {.prefix = files.free_prefix()});
  if (!plan) return plan.error();
  plan->index.metadata = kept_metadata(source);
  if (auto created = files.create(*plan); !created) return created;
  const auto checksums = write_pieces(source, folder, items, *plan);
  if (!checksums) return checksums.error();
  if (auto added = add_checksums(all, {*checksums}, *plan); !added) return added;
  return files.commit(*plan);
}

}  // namespace

base::Result<void> write_safetensors(const TensorSource& source, const std::string& path) {
  if (auto fits = check_space_for_file(source, path); !fits) return cannot_write(path, fits.error());
  auto file = base::AtomicFile::create(path);
  const auto written = file ? write_safetensors_to(source, *file) : base::Result<void>(file.error());
  if (!written) return cannot_write(path, written.error());
  return {};
}

base::Result<void> write_pt(const TensorSource& source, const std::string& path) {
  if (auto fits = check_space_for_file(source, path); !fits) return cannot_write(path, fits.error());
  std::vector<base::PickleEntry> entries;
  std::vector<StorageBytes> storages;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const TensorInfo& tensor = source.tensors()[i];
    entries.push_back({base::PickleValue::of_text(tensor.name),
                       pt_tensor({.key = std::to_string(i), .dtype = tensor.dtype, .shape = tensor.shape})});
    storages.push_back({.read = [&source, i](uint64_t first, std::span<char> to) { return source.read(i, first, to); },
                        .size = static_cast<uint64_t>(tensor.num_bytes())});
  }
  for (const PlainEntry& entry : source.contents().values) {
    entries.push_back({base::PickleValue::of_text(entry.name), entry.value});
  }
  const auto written = write_pt_file(path, pt_ordered_dict(std::move(entries)), storages);
  if (!written) return cannot_write(path, written.error());
  return {};
}

base::Result<void> write_sharded_folder(const TensorSource& source, const std::string& path) {
  if (auto fits = check_space(source, path, path); !fits) return cannot_write(path, fits.error());
  const auto written = write_folder(source, path);
  if (!written) return cannot_write(path, written.error());
  return {};
}

}  // namespace cohort::files
