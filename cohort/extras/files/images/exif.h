/// Reads the orientation of a camera from EXIF data.
#pragma once

#include <string_view>

namespace cohort::files::detail {

/// Returns the value of the tag Orientation, 1 to 8; 1 (upright) if it is missing or not valid. `tiff`: EXIF data beginning with
/// their byte order ("II" or "MM").
int exif_orientation(std::string_view tiff);

}  // namespace cohort::files::detail
