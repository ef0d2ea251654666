/// Lists image files in a folder with a folder per class, as torchvision/datasets/folder.py does:
///
///     root/cat/1.png, root/cat/more/2.jpg, root/dog/3.jpeg   ->   classes cat (0) and dog (1)
///
/// Classes are the folders of the root in the order of their names. Below a class, folders come in the order of their paths;
/// links to folders are followed, and everything else with a matching name is listed, even a dangling link. Names are compared
/// byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::files {

/// torchvision's extensions, in lower case. Upper case in a file's name matches, too.
extern const std::vector<std::string> kImageExtensions;

struct ImageFolderIndex {
  std::vector<std::string> classes;
  /// The path and the class of each file.
  std::vector<std::pair<std::string, int64_t>> samples;
};

struct ImageFolderIndexOptions {
  /// Lists only files with these endings.
  std::vector<std::string> extensions = kImageExtensions;
  /// Whether a class may have no files.
  bool allow_empty = false;
};

/// Errors: torchvision's, if there are no classes or a class has no files; a folder that cannot be read, which Python skips
/// silently; a link to a folder that contains it, which Python follows forty times.
base::Result<ImageFolderIndex> index_image_folder(const std::string& root, const ImageFolderIndexOptions& options = {});

/// Whether the file name ends like that of a JPEG or PNG file.
bool is_decodable_name(const std::string& path);

}  // namespace cohort::files
