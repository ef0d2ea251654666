/// Small pictures whose labels can be learned: digits drawn with a pen, and colored shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/extras/files/synthetic/sample_generator.h"

namespace cohort::files {

/// Draws the digit 0 to 9, light on black, side x side pixels, each time with a new position, angle, size, thickness and noise.
std::vector<uint8_t> draw_digit(int digit, int side, SampleGenerator& random);

/// Draws three planes (red, green, blue) of side x side pixels: one of five shapes on a darker background of another color. The
/// class determines the shape (label % 5) and roughly its color (label / 5, of num_classes / 5). Requires: num_classes is a
/// multiple of 5.
std::vector<uint8_t> draw_shape(int label, int num_classes, int side, SampleGenerator& random);

/// Returns "disc_of_color_0", ..., by label.
std::vector<std::string> shape_class_names(int num_classes);

}  // namespace cohort::files
