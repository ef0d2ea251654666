#include "cohort/files/tensors/plan/shard_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/disk_space.h"
#include "cohort/base/file/open_file.h"
#include "cohort/base/numbers/count.h"
#include "cohort/base/text/text.h"
#include "cohort/files/tensors/elements/crc32.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;
namespace fs = std::filesystem;

// Computes the checksum and writes the same bytes while they are in the cache.
constexpr size_t kBlockBytes = size_t{1} << 20;

Error cannot(const std::string& what, const std::string& path, int error) {
  return Error("cannot " + what + " \"" + path + "\": " + base::errno_text(error));
}

// Syncs a file or a folder.
Result<void> sync_path(const std::string& path) {
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return cannot("open", path, errno);
  if (fsync(fd.get()) != 0 && errno != EINVAL) return cannot("sync", path, errno);
  return {};
}

// Reserves disk space before anything is written, so that too little space is known at once.
Result<void> reserve_space(int fd, const PlannedFile& file, const std::string& folder) {
  base::survive_size_limit();
  const auto size = static_cast<off_t>(file.num_bytes);
  if (fallocate(fd, 0, 0, size) == 0) return {};
  if (errno == EOPNOTSUPP && ftruncate(fd, size) == 0) return {};
  const int reason = errno;
  Error error = cannot("take " + base::format_bytes(file.num_bytes) + " for \"" + file.name + "\" in", folder, reason);
  return base::with_space_hint(std::move(error), reason, folder);
}

std::vector<std::string> names_in(const std::string& folder) {
  auto names = base::names_in_folder(folder);
  return names ? *std::move(names) : std::vector<std::string>();
}

// Returns the files that an index names, if Cohort or a similar library wrote it.
std::vector<std::string> indexed_files(const std::string& folder) {
  Result<std::string> text = base::read_file(folder + "/" + kCheckpointIndexName, kMaxCheckpointIndexBytes);
  if (!text) return {};
  Result<CheckpointIndex> index = parse_checkpoint_index(*text);
  std::vector<std::string> names;
  if (!index) return names;
  for (const IndexedFile& file : index->files) names.push_back(file.name);
  return names;
}

}  // namespace

PieceWriter::PieceWriter(std::string folder, std::vector<std::string> file_names, bool sync)
    : folder_(std::move(folder)), names_(std::move(file_names)), sync_(sync ? base::Sync::kYes : base::Sync::kNo) {}

Result<int> PieceWriter::open(size_t file) {
  if (file >= names_.size())
    return Error("the plan names file " + std::to_string(file) + " of " + std::to_string(names_.size()));
  const auto found = open_files_.find(file);
  if (found != open_files_.end()) return found->second.get();
  const std::string path = folder_ + "/" + names_[file] + kUnfinishedSuffix;
  Result<base::Fd> fd = base::open_regular_file(path, O_WRONLY);
  if (!fd) {
    Error error("cannot open \"" + path + "\": " + fd.error().message());
    if (::access(path.c_str(), F_OK) == 0) return error;
    return std::move(error).with_hint("save to a folder that the hosts of all ranks share");
  }
  return open_files_.emplace(file, std::move(*fd)).first->second.get();
}

Result<uint32_t> PieceWriter::write(const PlannedWrite& place, const SaveItem& item, const char* data) {
  Result<int> fd = open(place.file);
  if (!fd) return fd.error();
  const int64_t size = info_of(item.dtype).size;
  uint32_t crc = 0;
  Result<void> done =
      for_each_common_run(item.region, whole_region(item.shape), [&](const ElementRun& run) -> Result<void> {
        std::string_view bytes(data + run.from * size, static_cast<size_t>(run.count * size));
        uint64_t offset = place.offset + static_cast<uint64_t>(run.to * size);
        while (!bytes.empty()) {
          const std::string_view block = bytes.substr(0, kBlockBytes);
          crc = crc32(block, crc);
          const auto written = base::write_at(*fd, offset, block, names_[place.file], sync_);
          if (!written) return written;
          bytes.remove_prefix(block.size());
          offset += block.size();
        }
        return {};
      });
  return done ? Result<uint32_t>(crc) : Result<uint32_t>(done.error());
}

Result<void> PieceWriter::finish() {
  if (sync_ == base::Sync::kNo) return {};
  for (const auto& [file, fd] : open_files_) {
    if (fsync(fd.get()) != 0) return cannot("sync", folder_ + "/" + names_[file] + kUnfinishedSuffix, errno);
  }
  return {};
}

ShardFiles::~ShardFiles() {
  for (const std::string& path : made_) std::remove(path.c_str());
}

Result<void> ShardFiles::prepare(bool overwrite) {
  if (Result<void> made = base::make_directories(folder_); !made) return made;
  std::error_code ignored;
  if (!overwrite && fs::exists(folder_ + "/" + kCheckpointIndexName, ignored)) {
    return Error("there is a checkpoint in \"" + folder_ + "\" already")
        .with_hint("give another folder, or set overwrite");
  }
  for (const std::string& name : names_in(folder_)) {
    if (name.ends_with(kUnfinishedSuffix)) std::remove((folder_ + "/" + name).c_str());
  }
  return {};
}

std::string ShardFiles::free_prefix() const {
  const std::vector<std::string> names = names_in(folder_);
  for (int number = 1;; ++number) {
    std::string prefix = number == 1 ? "model" : "model_" + std::to_string(number);
    const bool is_taken = std::any_of(names.begin(), names.end(),
                                      [&](const std::string& name) { return name.starts_with(prefix + "-"); });
    if (!is_taken) return prefix;
  }
}

Result<void> ShardFiles::create(const SavePlan& plan) {
  uint64_t num_bytes = 0;
  for (const PlannedFile& file : plan.files) num_bytes = base::add_capped<uint64_t>(num_bytes, file.num_bytes);
  const size_t count = plan.files.size();
  const std::string files = count == 1 ? '"' + plan.files.front().name + '"' : std::to_string(count) + " files";
  if (auto fits = base::check_space(folder_, num_bytes, files + " in \"" + folder_ + '"'); !fits) return fits;
  for (const PlannedFile& file : plan.files) {
    const std::string path = folder_ + "/" + file.name + kUnfinishedSuffix;
    const base::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd && (errno == EMFILE || errno == ENOSPC)) {
      const int reason = errno;
      return base::with_space_hint(cannot("create", path, reason), reason, folder_);
    }
    if (!fd) return cannot("create", path, errno).with_hint("check that the folder is writable");
    made_.push_back(path);
    if (Result<void> fits = reserve_space(fd.get(), file, folder_); !fits) return fits;
    if (auto written = base::write_at(fd.get(), 0, file.prefix, path, base::Sync::kNo); !written) return written;
  }
  return {};
}

Result<void> ShardFiles::commit(const SavePlan& plan) {
  Result<std::string> index = format_checkpoint_index(plan.index);
  if (!index) return index.error();
  const std::vector<std::string> old = indexed_files(folder_);
  for (size_t i = 0; i < plan.files.size(); ++i) {
    const std::string path = folder_ + "/" + plan.files[i].name;
    // The ranks have synced what they wrote, but no rank syncs the header of a file without data.
    if (Result<void> synced = sync_ ? sync_path(made_[i]) : Result<void>(); !synced) return synced;
    if (std::rename(made_[i].c_str(), path.c_str()) != 0) return cannot("rename a file to", path, errno);
    made_[i] = path;
  }
  if (Result<void> synced = sync_ ? sync_path(folder_) : Result<void>(); !synced) return synced;
  if (Result<void> done = base::write_file_atomically(folder_ + "/" + kCheckpointIndexName, *index); !done) return done;
  made_.clear();
  for (const std::string& name : old) {
    const bool is_new =
        std::any_of(plan.files.begin(), plan.files.end(), [&](const PlannedFile& file) { return file.name == name; });
    if (!is_new) std::remove((folder_ + "/" + name).c_str());
  }
  return {};
}

}  // namespace cohort::files
