#include "cohort/files/checkpoints/checkpoint_draft.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/files/checkpoints/checkpoint_list.h"
#include "cohort/files/checkpoints/checkpoint_name.h"
#include "cohort/files/checkpoints/file_checksum.h"

namespace cohort::files {
namespace {

base::Error draft_error(const std::string& action, const std::string& path, int error_number = errno) {
  return base::Error(fmt::format("cannot {} \"{}\": {}", action, path, base::errno_text(error_number)));
}

base::Result<void> sync_folder(const std::string& path) {
  const base::Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return draft_error("open the folder", path);
  // Some file systems do not support it for folders.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) return draft_error("sync the folder", path);
  return {};
}

void remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
}

// Returns the folders and the regular files below `folder`, with relative names; folders end in a slash.
base::Result<std::vector<std::string>> names_below(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator(); entry.increment(error)) {
    const bool is_folder = entry->is_directory(error) && !entry->is_symlink(error);
    names.push_back(entry->path().string().substr(folder.size() + 1) + (is_folder ? "/" : ""));
  }
  if (error) return draft_error("list the folder", folder, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

base::Result<void> write_manifest(const std::string& folder, const Manifest& manifest) {
  const std::string path = folder + "/" + kManifestName;
  const base::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return draft_error("create", path);
  if (auto written = base::write_all(fd.get(), format_manifest(manifest), path); !written) return written;
  if (::fsync(fd.get()) != 0) return draft_error("sync", path);
  return {};
}

}  // namespace

base::Result<ManifestFile> seal_file(const std::string& folder, const std::string& name) {
  const auto read = checksum_of_file(folder + "/" + name, SyncFile::kYes);
  if (!read) return read.error();
  return ManifestFile{.name = name, .size = read->size, .crc32 = read->crc32};
}

base::Result<CheckpointDraft> CheckpointDraft::begin(const std::string& root, int64_t step) {
  if (auto made = base::make_directories(root); !made) return made.error();
  std::string folder = root + "/" + temporary_checkpoint_name(kSavingPrefix, step);
  auto lock = base::LockFile::take(folder + std::string(kLockEnding), std::chrono::milliseconds(0));
  if (!lock) return lock.error();
  if (::mkdir(folder.c_str(), 0700) != 0) return draft_error("create the folder", folder);
  return CheckpointDraft(root, step, std::move(folder), std::move(*lock));
}

CheckpointDraft::~CheckpointDraft() {
  if (!folder_.empty()) remove_tree(folder_);
}

base::Result<void> CheckpointDraft::complete(Manifest& manifest) {
  const auto names = names_below(folder_);
  if (!names) return names.error();
  std::set<std::string> sealed;
  for (const ManifestFile& file : manifest.files) sealed.insert(file.name);
  for (const std::string& name : *names) {
    if (name.ends_with('/')) {
      if (auto synced = sync_folder(folder_ + "/" + name); !synced) return synced;
    } else if (!sealed.contains(name)) {
      const auto file = seal_file(folder_, name);
      if (!file) return file.error();
      manifest.files.push_back(*file);
    }
  }
  for (const ManifestFile& file : manifest.files) {
    if (auto checked = check_file(folder_, file, CheckpointCheck::kSizes); !checked) return checked;
  }
  manifest.step = step_;
  if (auto written = write_manifest(folder_, manifest); !written) return written;
  return sync_folder(folder_);
}

base::Result<void> CheckpointDraft::take_name(const std::string& path) {
  if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (errno == EEXIST) {
    // The replaced checkpoint then has the draft's name, and the destructor removes it.
    if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return {};
    if (errno != EINVAL && errno != ENOSYS) return draft_error("give its name to", path);
    if (auto removed = remove_checkpoint(root_, step_); !removed) return removed;
  } else if (errno != EINVAL && errno != ENOSYS) {
    return draft_error("rename the new checkpoint to", path);
  }
  // For a file system that has only the plain rename, which does not replace a folder with files.
  if (std::rename(folder_.c_str(), path.c_str()) != 0) return draft_error("rename the new checkpoint to", path);
  return {};
}

base::Result<std::string> CheckpointDraft::publish(Manifest manifest) {
  if (auto completed = complete(manifest); !completed) return completed.error();
  const std::string path = root_ + "/" + checkpoint_name(step_);
  if (auto renamed = take_name(path); !renamed) return renamed.error();
  if (auto synced = sync_folder(root_); !synced) return synced.error();
  return path;
}

base::Result<void> remove_checkpoint(const std::string& root, int64_t step) {
  const std::string path = root + "/" + checkpoint_name(step);
  const std::string going = root + "/" + temporary_checkpoint_name(kRemovingPrefix, step);
  if (std::rename(path.c_str(), going.c_str()) != 0) return draft_error("remove", path);
  std::error_code error;
  std::filesystem::remove_all(going, error);
  if (error) return draft_error("remove", going, error.value());
  return {};
}

std::vector<std::string> remove_leftovers(const std::string& root) {
  const auto list = list_checkpoints(root, CheckpointCheck::kSizes);
  if (!list) return {};
  std::set<std::string> stems;
  for (const std::string& name : list->temporary) {
    stems.insert(name.ends_with(kLockEnding) ? name.substr(0, name.size() - kLockEnding.size()) : name);
  }
  std::vector<std::string> removed;
  for (const std::string& stem : stems) {
    const std::string path = root + "/" + stem;
    if (stem.starts_with(kSavingPrefix)) {
      // Creates the lock if there is none: the writer was killed before it had one, or after.
      const auto lock = base::LockFile::take(path + std::string(kLockEnding), std::chrono::milliseconds(0));
      if (!lock) continue;
      remove_tree(path);
    } else {
      remove_tree(path);
    }
    std::error_code error;
    if (!std::filesystem::exists(path, error)) removed.push_back(stem);
  }
  return removed;
}

}  // namespace cohort::files
