/// Draws when a schedule runs its actions.
#pragma once

#include <string>

#include "cohort/pipeline/simulation.h"

namespace cohort::pipeline {

/// Draws a line per rank and a column per `unit` of time: `rank 0  0F0 0F1 ... 0B0 === 0B1 ===`. "." means that a rank waits; "="
/// means that an action goes on. `unit` must be positive. Drawings are cut after 10,000 columns.
std::string text_drawing(const Timeline& timeline, double unit = 1.0);
/// Draws an SVG file: a row of boxes per rank, with a color for each kind of action.
std::string svg_drawing(const Timeline& timeline);

}  // namespace cohort::pipeline
