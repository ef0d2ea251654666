#include "cohort/extras/files/images/image_folder_index.h"

#include <dirent.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <string_view>

#include "cohort/base/text/text.h"

namespace cohort::files {

const std::vector<std::string> kImageExtensions = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                                   ".pgm", ".tif",  ".tiff", ".webp"};

namespace {

struct Folder {
  std::vector<std::string> folders;
  std::vector<std::string> files;
};

// Like os.path.join.
std::string joined_path(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + '/' + name;
}

bool ends_in_any(std::string_view path, const std::vector<std::string>& extensions) {
  std::string lower(path);
  for (char& letter : lower) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](const auto& extension) { return lower.ends_with(extension); });
}

base::Error folder_error(const std::string& path) {
  return base::Error(fmt::format("cannot list the folder \"{}\": {}", path, base::errno_text(errno)));
}

base::Result<Folder> list_folder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(path.c_str()), closedir);
  if (!stream) return folder_error(path);
  Folder folder;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (!entry && errno != 0) return folder_error(path);
    if (!entry) break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) {
      struct stat info {};
      is_folder = stat(joined_path(path, name).c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    }
    (is_folder ? folder.folders : folder.files).push_back(name);
  }
  std::sort(folder.folders.begin(), folder.folders.end());
  std::sort(folder.files.begin(), folder.files.end());
  return folder;
}

// Collects the files in a folder and in all folders below it.
class FolderWalk {
 public:
  using Found = std::vector<std::pair<std::string, std::vector<std::string>>>;

  base::Result<void> walk(const std::string& path) {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return folder_error(path);
    const std::pair identity(info.st_dev, info.st_ino);
    if (!above_.insert(identity).second) {
      return base::Error(fmt::format("the folder \"{}\" is a link to a folder that it lies in", path));
    }
    auto folder = list_folder(path);
    if (!folder) return std::move(folder).error();
    found_.emplace_back(path, std::move(folder->files));
    for (const std::string& name : folder->folders) {
      if (auto done = walk(joined_path(path, name)); !done) return done;
    }
    above_.erase(identity);
    return {};
  }
  /// Returns the files in the order of their paths.
  Found take() {
    std::sort(found_.begin(), found_.end());
    return std::move(found_);
  }

 private:
  std::set<std::pair<dev_t, ino_t>> above_;
  Found found_;
};

}  // namespace

base::Result<ImageFolderIndex> index_image_folder(const std::string& root, const ImageFolderIndexOptions& options) {
  auto top = list_folder(root);
  if (!top) return std::move(top).error();
  ImageFolderIndex index{std::move(top->folders), {}};
  if (index.classes.empty()) return base::Error(fmt::format("Couldn't find any class folder in {}.", root));
  std::vector<std::string> empty_classes;
  for (size_t i = 0; i < index.classes.size(); ++i) {
    const size_t num_before = index.samples.size();
    FolderWalk walk;
    if (auto done = walk.walk(joined_path(root, index.classes[i])); !done) return done.error();
    for (const auto& [folder, names] : walk.take()) {
      for (const std::string& name : names) {
        if (!ends_in_any(name, options.extensions)) continue;
        index.samples.emplace_back(joined_path(folder, name), static_cast<int64_t>(i));
      }
    }
    if (index.samples.size() == num_before) empty_classes.push_back(index.classes[i]);
  }
  if (!empty_classes.empty() && !options.allow_empty) {
    return base::Error(fmt::format("Found no valid file for the classes {}. Supported extensions are: {}",
                                   fmt::join(empty_classes, ", "), fmt::join(options.extensions, ", ")));
  }
  return index;
}

bool is_decodable_name(const std::string& path) { return ends_in_any(path, {".jpg", ".jpeg", ".png"}); }

}  // namespace cohort::files
