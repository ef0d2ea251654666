#include "cohort/extras/data/datasets/image_folder.h"

#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/comm/error/throw_error.h"
#include "cohort/extras/files/images/image_folder_index.h"

namespace cohort::data {

struct ImageFolder::Listing {
  files::ImageFolderIndex index;
};

namespace {

constexpr const char* kDecodable[] = {".jpg", ".jpeg", ".png"};

files::ImageFolderIndexOptions index_options(const ImageFolderOptions& options) {
  files::ImageFolderIndexOptions result;
  result.allow_empty = options.allow_empty;
  if (options.skip_other_formats) result.extensions = {std::begin(kDecodable), std::end(kDecodable)};
  return result;
}

void check_formats(const std::vector<std::pair<std::string, int64_t>>& samples) {
  const auto is_other = [](const auto& sample) { return !files::is_decodable_name(sample.first); };
  const auto first = std::find_if(samples.begin(), samples.end(), is_other);
  if (first == samples.end()) return;
  TORCH_CHECK(false, "[cohort] ImageFolder decodes JPEG and PNG, but not \"", first->first, "\" (",
              std::count_if(first, samples.end(), is_other),
              " such files)\n  hint: convert them, or leave them out with "
              "ImageFolderOptions::skip_other_formats");
}

}  // namespace

ImageFolder::ImageFolder(const std::string& root, ImageFolderOptions options) : options_(options) {
  Listing listing{comm::or_throw(files::index_image_folder(root, index_options(options)))};
  check_formats(listing.index.samples);
  listing_ = std::make_shared<const Listing>(std::move(listing));
}

ImageFolder::Example ImageFolder::get(int64_t index) const {
  TORCH_CHECK_INDEX(index >= 0 && index < size(), "[cohort] ImageFolder has ", size(), " images, but image ", index,
                    " was asked for");
  const auto& [path, label] = samples()[static_cast<size_t>(index)];
  DecodeImageOptions options;
  options.apply_exif_orientation = options_.apply_exif_orientation;
  options.decode_size = options_.decode_size;
  options.max_pixels = options_.max_pixels;
  return {read_image(path, options_.mode, options), at::scalar_tensor(label, at::kLong)};
}

int64_t ImageFolder::size() const { return static_cast<int64_t>(samples().size()); }

const std::vector<std::string>& ImageFolder::classes() const { return listing_->index.classes; }

const std::vector<std::pair<std::string, int64_t>>& ImageFolder::samples() const { return listing_->index.samples; }

std::map<std::string, int64_t> ImageFolder::class_to_idx() const {
  std::map<std::string, int64_t> result;
  for (size_t i = 0; i < classes().size(); ++i) result[classes()[i]] = static_cast<int64_t>(i);
  return result;
}

std::vector<int64_t> ImageFolder::targets() const {
  std::vector<int64_t> result;
  result.reserve(samples().size());
  for (const auto& sample : samples()) result.push_back(sample.second);
  return result;
}

}  // namespace cohort::data
