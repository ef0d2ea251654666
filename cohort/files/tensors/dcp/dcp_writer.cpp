#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/disk_space.h"
#include "cohort/base/file/file.h"
#include "cohort/files/tensors/dcp/dcp_folder.h"
#include "cohort/files/tensors/dcp/dcp_metadata.h"
#include "cohort/files/tensors/dcp/tensor_bytes.h"
#include "cohort/files/tensors/elements/plain_json.h"
#include "cohort/files/tensors/elements/shown_text.h"
#include "cohort/files/tensors/pt/pt_writer.h"

namespace cohort::files {
namespace {

using base::Error;
using base::PickleValue;
using base::Result;

class DcpWriter {
 public:
  DcpWriter(const StoredCheckpoint& checkpoint, std::string folder) : bytes_(checkpoint), folder_(std::move(folder)) {}

  Result<void> add(const std::string& key, const StoredTensor& tensor) {
    DcpTensor described{tensor.dtype, tensor.shape, {}};
    Result<StorageBytes> bytes = bytes_.of(key, tensor);
    if (!bytes) return bytes.error();
    Result<DcpRecord> record = write(pt_tensor({.key = "0", .dtype = tensor.dtype, .shape = tensor.shape}), {*bytes});
    if (!record) return record.error();
    const std::vector<int64_t> offsets(tensor.shape.size(), 0);
    described.chunks.push_back({offsets, tensor.shape, std::move(*record)});
    metadata_.tensors.emplace(key, std::move(described));
    return {};
  }

  Result<void> add(const std::string& key, const Json& json) {
    Result<PickleValue> value = plain_value(json);
    if (!value) return value.error();
    Result<DcpRecord> record = write(*value, {});
    if (!record) return record.error();
    metadata_.values.emplace(key, std::move(*record));
    return {};
  }

  Result<void> finish(const std::map<std::string, std::vector<PathPart>>& paths) {
    for (const auto& [key, tensor] : metadata_.tensors) metadata_.paths[key] = {key};
    for (const auto& [key, record] : metadata_.values) metadata_.paths[key] = {key};
    for (const auto& [key, path] : paths) metadata_.paths[key] = path;
    Result<std::string> pickle = format_dcp_metadata(metadata_);
    if (!pickle) return pickle.error();
    return base::write_file_atomically(folder_ + "/.metadata", *pickle);
  }

 private:
  Result<DcpRecord> write(const PickleValue& root, const std::vector<StorageBytes>& storages) {
    const std::string name = "__0_" + std::to_string(num_files_++) + ".distcp";
    const std::string path = folder_ + "/" + name;
    if (Result<void> done = write_pt_file(path, root, storages); !done) return done.error();
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) return Error("cannot read the size of \"" + path + "\": " + error.message());
    return DcpRecord{name, 0, size};
  }

  TensorBytes bytes_;
  std::string folder_;
  DcpMetadata metadata_;
  size_t num_files_ = 0;
};

}  // namespace

Result<void> write_dcp_folder(const StoredCheckpoint& checkpoint, const std::string& folder) {
  if (Result<void> known = all_readable(checkpoint); !known) return known;
  if (Result<void> fits = base::check_space(folder, checkpoint.num_bytes(), '"' + folder + '"'); !fits) return fits;
  if (Result<void> made = base::make_directories(folder); !made) return made;
  std::error_code ignored;
  if (std::filesystem::exists(folder + "/.metadata", ignored)) {
    return Error("there is a checkpoint in \"" + folder + "\" already").with_hint("give another folder");
  }
  DcpWriter writer(checkpoint, folder);
  for (const auto& [key, tensor] : checkpoint.tensors) {
    if (Result<void> done = writer.add(key, tensor); !done)
      return Error("tensor " + quoted_name(key)).caused_by(done.error());
  }
  for (const auto& [key, value] : checkpoint.values) {
    if (Result<void> done = writer.add(key, value); !done)
      return Error("value " + quoted_name(key)).caused_by(done.error());
  }
  return writer.finish(checkpoint.paths);
}

}  // namespace cohort::files
