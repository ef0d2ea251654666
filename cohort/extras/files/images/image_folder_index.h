/// Which image files are in a folder of folders, one per class, as torchvision/datasets/folder.py lists them:
///
///     root/cat/1.png, root/cat/more/2.jpg, root/dog/3.jpeg   ->   classes cat (0) and dog (1)
///
/// Classes are the folders of the root in the order of their names. Below a class, folders come in the order of their paths,
/// links to folders are followed, and whatever else has a fitting name is listed, even a link to nothing. Names are compared
/// byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::files {

/// Those of torchvision, lower case. Upper case in a file's name counts alike.
extern const std::vector<std::string> kImageExtensions;

struct ImageFolderIndex {
  std::vector<std::string> classes;
  /// Path and class.
  std::vector<std::pair<std::string, int64_t>> samples;
};

struct ImageFolderIndexOptions {
  /// Only files whose names end so.
  std::vector<std::string> extensions = kImageExtensions;
  /// A class may have no files.
  bool allow_empty = false;
};

/// Errors: torchvision's, where there is no class, or a class without files; a folder that cannot be read, which Python leaves
/// out silently; a link that leads back to a folder it lies in, which Python follows forty times.
base::Result<ImageFolderIndex> index_image_folder(const std::string& root, const ImageFolderIndexOptions& options = {});

/// True for file names that end like those of JPEG or PNG files.
bool is_decodable_name(const std::string& path);

}  // namespace cohort::files
