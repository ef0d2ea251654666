#include "cohort/files/tensors/dcp/dcp_metadata.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cohort/base/pickle/pickle_reader.h"
#include "cohort/base/pickle/pickle_writer.h"
#include "cohort/files/tensors/elements/shown_text.h"
#include "cohort/files/tensors/pt/pt_names.h"
#include "cohort/files/tensors/safetensors/safetensors_header.h"

namespace cohort::files {
namespace {

using base::Error;
using base::PickleEntry;
using base::PickleKind;
using base::PickleValue;
using base::PythonName;
using base::Result;

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr const char* kFileSystemModule = "torch.distributed.checkpoint.filesystem";

std::string refuse_dcp_name(const PythonName& name) {
  const bool is_of_dcp = name.module == kMetadataModule || name.is(kFileSystemModule, "_StorageInfo");
  const bool is_path = name.module.starts_with("pathlib") && name.name.ends_with("Path");
  const bool is_other =
      name.is("torch", "Size") || name.is("torch.serialization", "_get_layout") || name.is("torch", "device");
  if (is_of_dcp || is_path || is_other || pt_dtype(name) || name.is("collections", "OrderedDict")) return "";
  return "it refers to " + shortened(name.text()) +
         ", which torch.distributed.checkpoint does not write; it was not run";
}

Error malformed(const std::string& what) { return Error("the metadata are malformed: " + what); }

// Returns an attribute of an object; None if there is none.
const PickleValue& attribute(const PickleValue& object, std::string_view name) {
  static const PickleValue none;
  if (!object.is(PickleKind::kObject)) return none;
  const PickleValue* found = object.object_state().find(name);
  return found ? *found : none;
}

bool is_object(const PickleValue& value, std::string_view module, std::string_view name) {
  return value.is(PickleKind::kObject) && value.name().is(module, name);
}

// Parses torch.Size, or a tuple or list.
std::optional<std::vector<int64_t>> sizes_of(const PickleValue& value) {
  const bool is_size = is_object(value, "torch", "Size") && value.arguments().size() == 1;
  const PickleValue& items = is_size ? value.arguments()[0] : value;
  if (!items.is(PickleKind::kTuple) && !items.is(PickleKind::kList)) return std::nullopt;
  std::vector<int64_t> sizes;
  for (const PickleValue& item : items.items()) {
    if (!item.is(PickleKind::kInt) || item.to_int() < 0) return std::nullopt;
    sizes.push_back(item.to_int());
  }
  return sizes;
}

Result<DcpRecord> record_of(const PickleValue& info) {
  const PickleValue& path = attribute(info, "relative_path");
  const PickleValue& offset = attribute(info, "offset");
  const PickleValue& length = attribute(info, "length");
  const PickleValue& transforms = attribute(info, "transform_descriptors");
  if (!path.is(PickleKind::kText) || !offset.is(PickleKind::kInt) || !length.is(PickleKind::kInt) ||
      offset.to_int() < 0 || length.to_int() <= 0) {
    return malformed("a record has no file, offset or length");
  }
  std::string name(path.text());
  if (const std::string problem = file_name_problem(name); !problem.empty()) {
    return malformed("the file " + quoted_name(name) + " " + problem);
  }
  if (!transforms.is_none() && !transforms.items().empty()) {
    return Error("records of " + quoted_name(name) +
                 " are compressed or changed by a stream extension, which cannot be read here")
        .with_hint("save the checkpoint without extensions");
  }
  return DcpRecord{std::move(name), static_cast<uint64_t>(offset.to_int()), static_cast<uint64_t>(length.to_int())};
}

// Records by key and, for chunks, offset.
using Records = std::map<std::pair<std::string, std::optional<std::vector<int64_t>>>, DcpRecord>;

Result<Records> records_of(const PickleValue& storage_data) {
  Records records;
  for (const PickleEntry& entry : storage_data.entries()) {
    const PickleValue& key = attribute(entry.key, "fqn");
    const PickleValue& offset = attribute(entry.key, "offset");
    const auto offsets = sizes_of(offset);
    if (!is_object(entry.key, kMetadataModule, "MetadataIndex") || !key.is(PickleKind::kText) ||
        (!offset.is_none() && !offsets)) {
      return malformed("a key of storage_data is not a MetadataIndex");
    }
    Result<DcpRecord> record = record_of(entry.value);
    if (!record) return record.error();
    records.insert_or_assign({std::string(key.text()), offsets}, std::move(*record));
  }
  return records;
}

Result<DcpTensor> tensor_of(const std::string& key, const PickleValue& info, const Records& records) {
  const auto fail = [&](const std::string& reason) { return malformed("tensor " + quoted_name(key) + " " + reason); };
  const PickleValue& properties = attribute(info, "properties").is(PickleKind::kObject)
                                      ? attribute(info, "properties").object_state()
                                      : attribute(info, "properties");
  const auto shape = sizes_of(attribute(info, "size"));
  const bool has_dtype = !properties.items().empty() && properties.items()[0].is(PickleKind::kName);
  const auto dtype = has_dtype ? pt_dtype(properties.items()[0].name()) : std::nullopt;
  if (!shape || !dtype) return fail("has no shape or dtype");
  if (!tensor_bytes(*dtype, *shape)) return fail("is larger than any memory");
  DcpTensor tensor{*dtype, *shape, {}};
  std::vector<Region> regions;
  for (const PickleValue& chunk : attribute(info, "chunks").items()) {
    const auto offsets = sizes_of(attribute(chunk, "offsets"));
    const auto sizes = sizes_of(attribute(chunk, "sizes"));
    if (!offsets || !sizes || offsets->size() != shape->size() || sizes->size() != shape->size())
      return fail("has a chunk without a place");
    for (size_t dim = 0; dim < shape->size(); ++dim) {
      if ((*offsets)[dim] > (*shape)[dim] || (*sizes)[dim] > (*shape)[dim] - (*offsets)[dim])
        return fail("has a chunk outside of it");
    }
    const Region region = box_region(*offsets, *sizes);
    if (num_elements(region) == 0) continue;
    const auto record = records.find({key, offsets});
    if (record == records.end()) return fail("has a chunk without a record");
    regions.push_back(region);
    tensor.chunks.push_back({*offsets, *sizes, record->second});
  }
  if (const auto problem = partition_problem(*shape, regions))
    return fail("is not covered exactly by its chunks: " + *problem);
  return tensor;
}

std::vector<PathPart> path_of(const PickleValue& value) {
  std::vector<PathPart> path;
  for (const PickleValue& part : value.items()) {
    if (part.is(PickleKind::kInt)) {
      path.emplace_back(part.to_int());
    } else {
      path.emplace_back(std::string(part.text()));
    }
  }
  return path;
}

PickleValue object_of(std::string module, std::string name, std::vector<PickleEntry> attributes) {
  return PickleValue::object(
      PythonName{std::move(module), std::move(name)},
      base::PickleParts{.state = attributes.empty() ? PickleValue() : PickleValue::dict(std::move(attributes)),
                        .by_new = true});
}

PickleEntry entry(const char* name, PickleValue value) { return {PickleValue::of_text(name), std::move(value)}; }

PickleValue size_value(const std::vector<int64_t>& sizes) {
  std::vector<PickleValue> items;
  for (const int64_t size : sizes) items.push_back(PickleValue::of_int(size));
  return PickleValue::object({"torch", "Size"}, std::vector<PickleValue>{PickleValue::tuple(std::move(items))});
}

PickleValue properties_value(Dtype dtype) {
  const auto layout = PickleValue::object({"torch.serialization", "_get_layout"},
                                          std::vector<PickleValue>{PickleValue::of_text("torch.strided")});
  const auto format =
      PickleValue::object({kMetadataModule, "_MEM_FORMAT_ENCODING"}, std::vector<PickleValue>{PickleValue::of_int(0)});
  auto state = PickleValue::tuple({PickleValue::of_name("torch", std::string(info_of(dtype).torch_name)), layout,
                                   PickleValue::of_bool(false), format, PickleValue::of_bool(false)});
  return PickleValue::object(PythonName{kMetadataModule, "TensorProperties"},
                             base::PickleParts{.state = std::move(state), .by_new = true});
}

PickleValue tensor_value(const DcpTensor& tensor) {
  std::vector<PickleValue> chunks;
  for (const DcpChunk& chunk : tensor.chunks) {
    chunks.push_back(object_of(kMetadataModule, "ChunkStorageMetadata",
                               {entry("offsets", size_value(chunk.offsets)), entry("sizes", size_value(chunk.sizes))}));
  }
  return object_of(kMetadataModule, "TensorStorageMetadata",
                   {entry("properties", properties_value(tensor.dtype)), entry("size", size_value(tensor.shape)),
                    entry("chunks", PickleValue::list(std::move(chunks)))});
}

PickleEntry record_entry(const std::string& key, const std::vector<int64_t>* offsets, int64_t index,
                         const DcpRecord& record) {
  PickleValue place = object_of(
      kMetadataModule, "MetadataIndex",
      {entry("fqn", PickleValue::of_text(key)), entry("index", offsets ? PickleValue::of_int(index) : PickleValue()),
       entry("offset", offsets ? size_value(*offsets) : PickleValue())});
  return {std::move(place), object_of(kFileSystemModule, "_StorageInfo",
                                      {entry("relative_path", PickleValue::of_text(record.file)),
                                       entry("offset", PickleValue::of_int(static_cast<int64_t>(record.offset))),
                                       entry("length", PickleValue::of_int(static_cast<int64_t>(record.num_bytes)))})};
}

PickleValue path_value(const std::vector<PathPart>& path) {
  std::vector<PickleValue> parts;
  for (const PathPart& part : path) {
    const auto* text = std::get_if<std::string>(&part);
    parts.push_back(text ? PickleValue::of_text(*text) : PickleValue::of_int(std::get<int64_t>(part)));
  }
  return PickleValue::tuple(std::move(parts));
}

}  // namespace

Result<DcpMetadata> parse_dcp_metadata(std::string_view pickle) {
  const auto read = base::read_pickle(
      pickle, {.refuse_name = refuse_dcp_name, .new_objects = true, .names_as_values = true, .any_keys = true});
  if (!read) return read.error();
  if (!is_object(read->value, kMetadataModule, "Metadata"))
    return malformed("it is not an object of torch.distributed.checkpoint");
  Result<Records> records = records_of(attribute(read->value, "storage_data"));
  if (!records) return records.error();
  DcpMetadata metadata;
  for (const PickleEntry& entry : attribute(read->value, "state_dict_metadata").entries()) {
    const std::string key(entry.key.text());
    if (is_object(entry.value, kMetadataModule, "TensorStorageMetadata")) {
      Result<DcpTensor> tensor = tensor_of(key, entry.value, *records);
      if (!tensor) return tensor.error();
      metadata.tensors.insert_or_assign(key, std::move(*tensor));
      continue;
    }
    const auto record = records->find({key, std::nullopt});
    if (record == records->end()) return malformed("the value " + quoted_name(key) + " has no record");
    metadata.values.insert_or_assign(key, record->second);
  }
  for (const PickleEntry& entry : attribute(read->value, "planner_data").entries()) {
    metadata.paths.insert_or_assign(std::string(entry.key.text()), path_of(entry.value));
  }
  return metadata;
}

Result<std::string> format_dcp_metadata(const DcpMetadata& metadata) {
  std::vector<PickleEntry> tensors;
  std::vector<PickleEntry> records;
  std::vector<PickleEntry> paths;
  for (const auto& [key, tensor] : metadata.tensors) {
    tensors.push_back({PickleValue::of_text(key), tensor_value(tensor)});
    for (size_t i = 0; i < tensor.chunks.size(); ++i) {
      records.push_back(record_entry(key, &tensor.chunks[i].offsets, static_cast<int64_t>(i), tensor.chunks[i].record));
    }
  }
  for (const auto& [key, record] : metadata.values) {
    tensors.push_back({PickleValue::of_text(key), object_of(kMetadataModule, "BytesStorageMetadata", {})});
    records.push_back(record_entry(key, nullptr, 0, record));
  }
  for (const auto& [key, path] : metadata.paths) paths.push_back({PickleValue::of_text(key), path_value(path)});
  const PickleValue root =
      object_of(kMetadataModule, "Metadata",
                {entry("state_dict_metadata", PickleValue::dict(std::move(tensors))),
                 entry("planner_data", PickleValue::dict(std::move(paths))),
                 entry("storage_data", PickleValue::dict(std::move(records))), entry("storage_meta", PickleValue()),
                 entry("version", PickleValue::of_text("1.0.0"))});
  return base::write_pickle(root, 4);
}

}  // namespace cohort::files
