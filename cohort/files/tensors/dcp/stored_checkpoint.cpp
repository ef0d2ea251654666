#include "cohort/files/tensors/dcp/stored_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cohort/base/file/disk_space.h"
#include "cohort/base/file/open_file.h"
#include "cohort/base/numbers/count.h"
#include "cohort/base/text/text.h"
#include "cohort/files/tensors/dcp/dcp_folder.h"
#include "cohort/files/tensors/dcp/pt_checkpoint.h"
#include "cohort/files/tensors/elements/checked_json.h"
#include "cohort/files/tensors/elements/shown_text.h"
#include "cohort/files/tensors/plan/save_plan.h"
#include "cohort/files/tensors/safetensors/safetensors_file.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;
namespace fs = std::filesystem;

constexpr size_t kMaxValueDepth = 700;

void add_tensors(const SafetensorsFile& file, size_t index, StoredCheckpoint& checkpoint) {
  for (const SafetensorsEntry& entry : file.header.entries) {
    StoredTensor& tensor = checkpoint.tensors[entry.name];
    tensor.dtype = entry.dtype;
    tensor.shape = entry.shape;
    tensor.chunks = {{whole_region(entry.shape), index, file.data_begin + entry.begin}};
  }
}

// Detects zip files, and pickles of protocol 2 for the older format. A safetensors header of that length would have petabytes.
bool is_torch_file(const std::string& path) {
  char begin[8] = {};
  Result<RandomAccessFile> file = RandomAccessFile::open(path);
  if (!file || !file->read(0, begin, "the beginning")) return false;
  const std::string_view bytes(begin, sizeof(begin));
  return bytes.starts_with("PK\3\4") || (bytes.starts_with("\x80\x02") && bytes[7] != '\0');
}

Result<StoredCheckpoint> open_single_file(const std::string& path) {
  if (is_torch_file(path)) return open_pt_checkpoint(path);
  Result<SafetensorsFile> file = open_safetensors(path);
  if (!file) return Error("cannot read \"" + path + "\"").caused_by(file.error());
  StoredCheckpoint checkpoint{.path = path, .files = {path}, .metadata = file->header.metadata};
  add_tensors(*file, 0, checkpoint);
  const auto values = checkpoint.metadata.find(kValuesMetadata);
  if (values == checkpoint.metadata.end()) return checkpoint;
  Result<CheckedJson> json = parse_checked_json(values->second, "values", kMaxValueDepth);
  if (!json) return Error("cannot read the values of \"" + path + "\"").caused_by(json.error());
  for (const auto& [key, value] : json->json.items()) checkpoint.values.emplace(key, value);
  checkpoint.metadata.erase(values);
  return checkpoint;
}

// Converts a tensor that is stored as pairs of numbers back to complex128.
Result<void> make_complex128(const std::string& name, StoredTensor& tensor) {
  if (tensor.dtype != Dtype::kFloat64 || tensor.shape.empty() || tensor.shape.back() != 2) {
    return Error("the index says that " + quoted_name(name) +
                 " is complex128, but its file does not have it as F64 with a last dimension of 2");
  }
  tensor.dtype = Dtype::kComplex128;
  tensor.shape.pop_back();
  tensor.chunks.front().region = whole_region(tensor.shape);
  return {};
}

// Adds a file. It must have the tensors that the index names; other tensors in it do not belong to the checkpoint.
Result<void> add_file(const CheckpointIndex& index, size_t number, const std::vector<std::string>& names,
                      StoredCheckpoint& checkpoint) {
  const IndexedFile& indexed = index.files[number];
  const std::string& path = checkpoint.files[number];
  Result<SafetensorsFile> file = open_safetensors(path);
  if (!file) return Error("cannot read \"" + path + "\", which the index names").caused_by(file.error());
  if (index.is_ours && file->file.size() != indexed.num_bytes) {
    return Error("\"" + path + "\" has " + std::to_string(file->file.size()) + " bytes, but the index says " +
                 std::to_string(indexed.num_bytes) + ": the checkpoint is damaged");
  }
  StoredCheckpoint found;
  add_tensors(*file, number, found);
  for (const std::string& name : names) {
    const auto tensor = found.tensors.find(name);
    if (tensor == found.tensors.end())
      return Error("\"" + path + "\" has no tensor " + quoted_name(name) + ", but the index says so");
    checkpoint.tensors.emplace(name, std::move(tensor->second));
  }
  return {};
}

Result<void> add_pieces(CheckpointIndex& index, StoredCheckpoint& checkpoint) {
  for (auto& [name, pieces] : index.pieces) {
    const auto tensor = checkpoint.tensors.find(name);
    if (tensor == checkpoint.tensors.end())
      return Error("the index has checksums of " + quoted_name(name) + ", which is not one of its tensors");
    for (const CheckedPiece& piece : pieces) {
      Result<void> checked = check_region(piece.region, tensor->second.shape);
      if (!checked)
        return Error("the checksums of " + quoted_name(name) + " do not match it").caused_by(checked.error());
    }
    tensor->second.pieces = std::move(pieces);
  }
  return {};
}

Result<StoredCheckpoint> open_indexed(const std::string& folder) {
  const std::string path = folder + "/" + kCheckpointIndexName;
  Result<std::string> text = base::read_file(path, kMaxCheckpointIndexBytes);
  if (!text) return text.error();
  Result<CheckpointIndex> index = parse_checkpoint_index(*text);
  if (!index) return Error("cannot read \"" + path + "\"").caused_by(index.error());
  StoredCheckpoint checkpoint{
      .path = folder, .values = std::move(index->values), .metadata = std::move(index->metadata)};
  if (index->is_ours) checkpoint.indexed = index->files;
  for (const IndexedFile& file : index->files) checkpoint.files.push_back(folder + "/" + file.name);
  std::vector<std::vector<std::string>> names(index->files.size());
  for (const auto& [name, file] : index->file_of) names[file].push_back(name);
  for (size_t number = 0; number < names.size(); ++number) {
    if (Result<void> added = add_file(*index, number, names[number], checkpoint); !added) return added.error();
  }
  for (const std::string& name : index->complex128) {
    if (Result<void> made = make_complex128(name, checkpoint.tensors.at(name)); !made) return made.error();
  }
  if (Result<void> added = add_pieces(*index, checkpoint); !added) return added.error();
  return checkpoint;
}

Error nothing_to_open(const std::string& folder) {
  size_t num_unfinished = 0;
  const auto names = base::names_in_folder(folder);
  if (!names) return Error("cannot read the folder \"" + folder + "\": " + names.error().message());
  for (const std::string& name : *names) {
    if (name.ends_with(kUnfinishedSuffix) || name.ends_with(".safetensors") || name.ends_with(".distcp"))
      ++num_unfinished;
  }
  if (num_unfinished == 0) {
    return Error("\"" + folder + "\" holds no checkpoint: it has neither " + kCheckpointIndexName + " nor .metadata");
  }
  return Error("\"" + folder + "\" is an unfinished checkpoint: it has " + std::to_string(num_unfinished) +
               (num_unfinished == 1 ? " file" : " files") + " with data, but neither " + kCheckpointIndexName +
               " nor .metadata, which are written last")
      .with_hint("saving it was interrupted; load an older checkpoint, and delete this folder");
}

}  // namespace

uint64_t StoredCheckpoint::num_bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors)
    sum = base::add_capped<uint64_t>(sum, tensor_bytes(tensor.dtype, tensor.shape).value_or(UINT64_MAX));
  return sum;
}

Result<StoredCheckpoint> open_stored_checkpoint(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const auto unseen = [&] { return Error("cannot look at \"" + path + "\": " + base::errno_text(error.value())); };
  if (status.type() == fs::file_type::not_found) return Error("there is nothing at \"" + path + "\"");
  if (!fs::status_known(status)) return unseen();
  if (!fs::is_directory(status)) return open_single_file(path);
  if (fs::exists(path + "/" + kCheckpointIndexName, error)) return open_indexed(path);
  if (error) return unseen();  // for a folder that may be listed, but in which nothing may be opened
  if (fs::exists(path + "/.metadata", error)) return open_dcp_folder(path);
  if (fs::exists(path + "/model.safetensors", error)) return open_single_file(path + "/model.safetensors");
  return nothing_to_open(path);
}

}  // namespace cohort::files
