/// How a camera was held, as EXIF data say.
#pragma once

#include <string_view>

namespace cohort::files::detail {

/// The number of the tag Orientation, 1 to 8; 1, upright, where the data do not say or cannot be understood. `tiff`: EXIF data
/// from their byte order ("II" or "MM") on.
int exif_orientation(std::string_view tiff);

}  // namespace cohort::files::detail
