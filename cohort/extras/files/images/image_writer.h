/// Encodes images as JPEG and PNG files in memory.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/images/image_format.h"

namespace cohort::files {

/// How many pixels share one value of color.
enum class JpegSubsampling { k444, k422, k420 };

struct JpegOptions {
  /// 1 to 100.
  int quality = 75;
  JpegSubsampling subsampling = JpegSubsampling::k420;
  bool progressive = false;
};

/// Fails unless there are 1 or 3 channels, for sides above 65500, and for a quality out of range.
base::Result<std::string> encode_jpeg(const ImageView& image, const JpegOptions& options = {});

/// Encodes 1 to 4 channels. `compression_level`: 0 (no compression) to 9.
base::Result<std::string> encode_png(const ImageView& image, int compression_level = 6);

}  // namespace cohort::files
