/// Small pictures whose labels can be learnt: digits as strokes of a pen, and coloured shapes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/extras/files/stand_ins/sample_generator.h"

namespace cohort::files {

/// The digit 0 to 9, light on black, side x side pixels: moved, turned, scaled, of another thickness and with noise each time.
std::vector<uint8_t> draw_digit(int digit, int side, SampleGenerator& random);

/// Three planes (red, green, blue) of side x side pixels: one of five shapes on a darker ground of another colour. The class
/// decides the shape (label % 5) and about what colour it has (label / 5, of num_classes / 5).
/// Requires: num_classes is a multiple of 5.
std::vector<uint8_t> draw_shape(int label, int num_classes, int side, SampleGenerator& random);

/// "disc_of_colour_0", ..., by label.
std::vector<std::string> shape_class_names(int num_classes);

}  // namespace cohort::files
