/// Images as the bytes of JPEG and PNG files.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/images/image_format.h"

namespace cohort::files {

/// How many pixels of brightness share one of colour.
enum class JpegSubsampling { k444, k422, k420 };

struct JpegOptions {
  /// 1 to 100.
  int quality = 75;
  JpegSubsampling subsampling = JpegSubsampling::k420;
  bool progressive = false;
};

/// Fails for other than 1 or 3 channels, sides above 65500, and a quality out of range.
base::Result<std::string> encode_jpeg(const ImageView& image, const JpegOptions& options = {});

/// 1 to 4 channels. `compression_level`: 0 (none) to 9.
base::Result<std::string> encode_png(const ImageView& image, int compression_level = 6);

}  // namespace cohort::files
