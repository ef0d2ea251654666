#include "cohort/extras/files/sets/folder_target.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "cohort/base/text/text.h"

namespace cohort::files {

base::Result<void> FolderTarget::add_folder(const std::string& name) {
  std::string path = folder_;
  for (const std::string& part : base::split(name, '/')) {
    if (part.empty() || part == ".") continue;
    path += "/" + part;
    if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) continue;
    return base::Error(fmt::format("cannot create the folder \"{}\": {}", path, base::errno_text(errno)));
  }
  return {};
}

base::Result<void> FolderTarget::begin_file(const std::string& name) {
  if (const auto slash = name.rfind('/'); slash != std::string::npos) {
    if (auto added = add_folder(name.substr(0, slash)); !added) return added;
  }
  path_ = folder_ + "/" + name;
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd_) return base::Error(fmt::format("cannot create \"{}\": {}", path_, base::errno_text(errno)));
  return {};
}

base::Result<void> FolderTarget::write(std::string_view bytes) { return base::write_all(fd_.get(), bytes, path_); }

}  // namespace cohort::files
