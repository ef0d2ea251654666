#include "cohort/files/tensors/dcp/dcp_folder.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/base/file/file.h"
#include "cohort/files/tensors/dcp/dcp_metadata.h"
#include "cohort/files/tensors/dcp/pt_checkpoint.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

// Larger metadata would not fit into memory after parsing.
constexpr size_t kMaxMetadataBytes = size_t{1} << 30;

class DcpOpener {
 public:
  explicit DcpOpener(StoredCheckpoint& checkpoint) : checkpoint_(checkpoint) {}

  size_t file(const std::string& name) {
    const auto [place, is_new] = places_.try_emplace(name, checkpoint_.files.size());
    if (is_new) checkpoint_.files.push_back(checkpoint_.path + "/" + name);
    return place->second;
  }

  void add(const std::string& key, const DcpTensor& tensor) {
    StoredTensor stored{.dtype = tensor.dtype, .shape = tensor.shape};
    for (const DcpChunk& chunk : tensor.chunks) {
      stored.chunks.push_back({.region = box_region(chunk.offsets, chunk.sizes),
                               .file = file(chunk.record.file),
                               .offset = chunk.record.offset,
                               .record_bytes = chunk.record.num_bytes});
    }
    checkpoint_.tensors.emplace(key, std::move(stored));
  }

  void add(const std::string& key, const DcpRecord& record) {
    Result<Json> value = read_value(record);
    if (value) {
      checkpoint_.values.emplace(key, std::move(*value));
    } else {
      checkpoint_.unreadable.emplace(key, value.error().describe());
    }
  }

 private:
  Result<Json> read_value(const DcpRecord& record) {
    Result<RandomAccessFile> opened = RandomAccessFile::open(checkpoint_.files[file(record.file)]);
    if (!opened) return opened.error();
    if (record.offset > opened->size() || record.num_bytes > opened->size() - record.offset) {
      return Error("\"" + opened->path() + "\" ends before its record: the checkpoint is damaged");
    }
    Result<PtFile> description = read_pt_file(opened->slice(record.offset, record.num_bytes));
    return description ? plain_json(*description, description->root) : Result<Json>(description.error());
  }

  StoredCheckpoint& checkpoint_;
  std::map<std::string, size_t> places_;
};

}  // namespace

Result<StoredCheckpoint> open_dcp_folder(const std::string& folder) {
  const std::string path = folder + "/.metadata";
  Result<std::string> pickle = base::read_file(path, kMaxMetadataBytes);
  if (!pickle) return pickle.error();
  Result<DcpMetadata> metadata = parse_dcp_metadata(*pickle);
  if (!metadata) return Error("cannot read \"" + path + "\"").caused_by(metadata.error());
  StoredCheckpoint checkpoint{.path = folder, .paths = std::move(metadata->paths)};
  DcpOpener opener(checkpoint);
  for (const auto& [key, tensor] : metadata->tensors) opener.add(key, tensor);
  for (const auto& [key, record] : metadata->values) opener.add(key, record);
  return checkpoint;
}

}  // namespace cohort::files
