/// Pictures of what a schedule does when.
#pragma once

#include <string>

#include "cohort/pipeline/simulation.h"

namespace cohort::pipeline {

/// A line per rank, a column per `unit` of time: `rank 0  0F0 0F1 ... 0B0 === 0B1 ===`. "." where a rank waits; "=" where an
/// action goes on. `unit` must be positive. Drawings of more than 10,000 columns are cut.
std::string text_drawing(const Timeline& timeline, double unit = 1.0);
/// An SVG file: a row of boxes per rank, a colour per kind of action.
std::string svg_drawing(const Timeline& timeline);

}  // namespace cohort::pipeline
