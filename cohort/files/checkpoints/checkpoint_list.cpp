#include "cohort/files/checkpoints/checkpoint_list.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/files/checkpoints/checkpoint_name.h"
#include "cohort/files/checkpoints/file_checksum.h"

namespace cohort::files {
namespace {

FoundCheckpoint look_at(const std::string& root, const std::string& name, int64_t step, CheckpointCheck check) {
  FoundCheckpoint found{.name = name, .step = step, .manifest = {}, .problem = {}};
  auto manifest = check_checkpoint(root + "/" + name, check);
  if (manifest) {
    found.manifest = std::move(*manifest);
  } else {
    found.problem = manifest.error().message();
  }
  return found;
}

}  // namespace

base::Result<Manifest> read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return base::Error(fmt::format("it is unfinished: it has no {}", kManifestName));
    return base::Error(fmt::format("cannot look at \"{}\": {}", path, base::errno_text(errno)));
  }
  if (!S_ISREG(info.st_mode)) return base::Error(fmt::format("{} is not a plain file", kManifestName));
  const auto text = base::read_file(path, kMaxManifestBytes);
  if (!text) return text.error();
  return parse_manifest(*text);
}

base::Result<void> check_file(const std::string& folder, const ManifestFile& file, CheckpointCheck check) {
  const std::string path = folder + "/" + file.name;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return base::Error(fmt::format("\"{}\" is missing: {}", file.name, base::errno_text(errno)));
  }
  if (!S_ISREG(info.st_mode)) return base::Error(fmt::format("\"{}\" is not a plain file", file.name));
  if (static_cast<uint64_t>(info.st_size) != file.size) {
    return base::Error(
        fmt::format("\"{}\" has {} bytes, but the manifest says {}", file.name, info.st_size, file.size));
  }
  if (check == CheckpointCheck::kSizes) return {};
  const auto read = checksum_of_file(path);
  if (!read) return read.error();
  if (read->size == file.size && read->crc32 == file.crc32) return {};
  return base::Error(fmt::format("\"{}\" is damaged: its checksum is {:08x}, but the manifest says {:08x}", file.name,
                                 read->crc32, file.crc32));
}

base::Result<Manifest> check_checkpoint(const std::string& folder, CheckpointCheck check) {
  auto manifest = read_manifest(folder);
  if (!manifest) return manifest;
  const auto step = step_of_checkpoint(std::filesystem::path(folder).filename().string());
  if (step && *step != manifest->step) {
    return base::Error(fmt::format("its manifest is one of step {}", manifest->step));
  }
  for (const ManifestFile& file : manifest->files) {
    if (const auto checked = check_file(folder, file, check); !checked) return checked.error();
  }
  return manifest;
}

base::Result<CheckpointList> list_checkpoints(const std::string& root, CheckpointCheck check) {
  CheckpointList list;
  std::error_code error;
  std::filesystem::directory_iterator entry(root, error);
  if (error == std::errc::no_such_file_or_directory) return list;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (const auto step = step_of_checkpoint(name)) {
      list.checkpoints.push_back(look_at(root, name, *step, check));
    } else if (name.starts_with(kSavingPrefix) || name.starts_with(kRemovingPrefix)) {
      list.temporary.push_back(name);
    }
  }
  if (error) {
    return base::Error(fmt::format("cannot list the folder \"{}\": {}", root, base::errno_text(error.value())));
  }
  std::sort(list.checkpoints.begin(), list.checkpoints.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  std::sort(list.temporary.begin(), list.temporary.end());
  return list;
}

}  // namespace cohort::files
