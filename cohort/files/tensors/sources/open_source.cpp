#include "cohort/files/tensors/sources/open_source.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"
#include "cohort/files/tensors/sources/pt_source.h"
#include "cohort/files/tensors/sources/stored_source.h"

namespace cohort::files {
namespace {

bool has_ending(const std::string& path, const std::vector<std::string>& endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) { return path.ends_with(ending); });
}

// Detects a zip file or a pickle. For other content the name decides which format's error is shown.
bool is_pt_file(const RandomAccessFile& file) {
  const auto start = file.read(0, std::min<uint64_t>(file.size(), 9), "the start of the file");
  if (!start) return false;
  if (start->starts_with("PK") || start->starts_with("\x80")) return !(start->size() == 9 && start->back() == '{');
  return has_ending(file.path(), {".pt", ".pth", ".bin"});
}

// Returns the only file of tensors in a folder; empty if there are none or several.
std::string only_file_in(const std::string& folder) {
  std::vector<std::string> found;
  const auto names = base::names_in_folder(folder);
  for (const std::string& name : names ? *names : found) {
    if (has_ending(name, {".pt", ".pth", ".bin", ".safetensors"})) found.push_back(folder + "/" + name);
  }
  return found.size() == 1 ? found.front() : "";
}

}  // namespace

base::Result<std::unique_ptr<TensorSource>> open_tensor_source(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return base::Error(fmt::format("cannot open \"{}\": {}", path, base::errno_text(errno)));
  }
  if (S_ISDIR(info.st_mode)) {
    auto source = open_stored_source(path);
    if (source.ok()) return source;
    const std::string file = only_file_in(path);
    return file.empty() ? std::move(source) : open_tensor_source(file);
  }
  const auto file = RandomAccessFile::open(path);
  if (!file) return file.error();
  return is_pt_file(*file) ? open_pt_file(*file) : open_stored_source(path);
}

}  // namespace cohort::files
