/// ImageFolder: images in a folder per class, as torchvision.datasets.ImageFolder (folder.py):
///
///     const ImageFolder folder("imagenet/train", {.decode_size = 256});
///     const TransformedDataset dataset(folder, Compose({RandomResizedCrop(224), ToTensor()}));
///     const DataLoader loader(dataset, {.batch_size = 64, .shuffle = true, .num_workers = 4});
///     for (auto& [images, labels] : loader) ...       // float32 [64, 3, 224, 224], int64 [64]
///
/// ```text
/// imagenet/train/cat/1.jpg, imagenet/train/cat/more/2.png, imagenet/train/dog/3.jpeg   ->   cat is 0, dog is 1
/// ```
///
/// The constructor lists the folder once. If files disappear, shrink or are damaged later, get() throws errors that name them;
/// DataLoaderOptions::skip_unreadable leaves them out.
///
/// Thread-safety: const; any number of threads may read. Copies share the list.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"
#include "cohort/extras/data/datasets/image_io.h"

namespace cohort::data {

struct ImageFolderOptions {
  ImageReadMode mode = ImageReadMode::kRgb;
  /// Decodes JPEGs to a smaller size, as DecodeImageOptions::decode_size: takes a fraction of the time, with slightly different
  /// pixels.
  std::optional<int64_t> decode_size = {};
  bool apply_exif_orientation = false;
  int64_t max_pixels = 178'956'970;
  /// Whether classes may have no files.
  bool allow_empty = false;
  /// Whether to leave out .ppm, .bmp, .pgm, .tif, .tiff and .webp, which torchvision lists, but which cannot be decoded here. If
  /// false, they are an error of the constructor.
  bool skip_other_formats = false;
};

class COHORT_API ImageFolder {
 public:
  /// (image, label): uint8 [channels, height, width] and int64 [].
  using Example = std::pair<at::Tensor, at::Tensor>;

  /// Throws c10::Error if there are no classes, or classes without files (with torchvision's texts), for folders that cannot be
  /// read, circular links, and formats that cannot be decoded.
  explicit ImageFolder(const std::string& root, ImageFolderOptions options = {});

  /// Throws c10::IndexError outside [0, size() - 1], and c10::Error for a file that cannot be read.
  Example get(int64_t index) const;
  int64_t size() const;

  /// Names of the classes, by label, in the order of the names.
  const std::vector<std::string>& classes() const;
  std::map<std::string, int64_t> class_to_idx() const;
  /// Path and label of each example.
  const std::vector<std::pair<std::string, int64_t>>& samples() const;
  /// Label of each example.
  std::vector<int64_t> targets() const;

 private:
  struct Listing;
  std::shared_ptr<const Listing> listing_;
  ImageFolderOptions options_;
};

}  // namespace cohort::data
