#include "cohort/checkpoint/sharded/convert.h"

#include <c10/util/Exception.h>

#include "cohort/comm/error/throw_error.h"
#include "cohort/files/tensors/dcp/dcp_folder.h"
#include "cohort/files/tensors/dcp/pt_checkpoint.h"

namespace cohort::checkpoint {
namespace {

using files::StoredCheckpoint;

void write_or_throw(const char* function, const std::string& from, const std::string& to,
                    const base::Result<StoredCheckpoint>& checkpoint,
                    base::Result<void> (*write)(const StoredCheckpoint&, const std::string&)) {
  const auto fail = [&](const char* verb, const std::string& path, const base::Error& cause) {
    comm::throw_error(base::Error(c10::str("cannot ", verb, " \"", path, "\"")).caused_by(cause), function);
  };
  if (!checkpoint) fail("read", from, checkpoint.error());
  const base::Result<void> done = write(*checkpoint, to);
  if (!done) fail("write", to, done.error());
}

}  // namespace

void consolidate(const std::string& from, const std::string& file) {
  write_or_throw("consolidate", from, file, files::open_stored_checkpoint(from), files::consolidate);
}

void convert_to_dcp(const std::string& from, const std::string& folder) {
  write_or_throw("convert_to_dcp", from, folder, files::open_stored_checkpoint(from), files::write_dcp_folder);
}

void dcp_to_torch_save(const std::string& dcp_checkpoint_dir, const std::string& torch_save_path) {
  write_or_throw("dcp_to_torch_save", dcp_checkpoint_dir, torch_save_path, files::open_dcp_folder(dcp_checkpoint_dir),
                 files::consolidate_pt);
}

void torch_save_to_dcp(const std::string& torch_save_path, const std::string& dcp_checkpoint_dir) {
  write_or_throw("torch_save_to_dcp", torch_save_path, dcp_checkpoint_dir, files::open_pt_checkpoint(torch_save_path),
                 files::write_dcp_folder);
}

}  // namespace cohort::checkpoint
