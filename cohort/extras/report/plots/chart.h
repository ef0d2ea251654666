/// Chart: draws curves.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::report {

struct PlotCurve {
  std::string name;
  /// x and y. A point that is not finite leaves a gap.
  std::vector<std::pair<double, double>> points;
};

struct PlotChart {
  std::string title;
  std::string x_label = {};
  std::string y_label = {};
  std::vector<PlotCurve> curves = {};
  /// Whether the y axis has powers of ten; points that are not positive leave a gap.
  bool log_y = false;
};

struct PlotSize {
  int width = 800;
  int height = 400;
};

/// Returns the bytes of a file with the charts below each other. Fails for sizes outside of 200 to 4000, and for more than 40000
/// rows.
base::Result<std::string> plot_svg(const std::vector<PlotChart>& charts, PlotSize size = {});
base::Result<std::string> plot_png(const std::vector<PlotChart>& charts, PlotSize size = {});

/// The largest number of charts of this size in one picture.
size_t most_charts(PlotSize size);

/// Returns a chart for each last part of the names ("loss" of "train/loss"), in the order of their first curves. The part before
/// it names the curve.
std::vector<PlotChart> charts_by_name(const std::vector<PlotCurve>& curves, const std::string& x_label);

}  // namespace cohort::report
