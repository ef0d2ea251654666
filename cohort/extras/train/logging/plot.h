/// Draws curves as SVG or PNG, depending on the ending of the file's name. The examples' `--plot` uses it.
///
///     cohort::train::PlotLogger plot("run/curves.svg");   // one chart for "loss" with the curves "train" and "validation"
///     plot.log_metrics(step, {{"train/loss", 0.5}, {"validation/loss", 0.6}});
///     plot.close();
///
/// Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/export.h"
#include "cohort/train/logging/logger.h"

namespace cohort::train {

struct Curve {
  std::string name;
  /// x and y, drawn in this order. A point that is not finite leaves a gap.
  std::vector<std::pair<double, double>> points;
};

struct Chart {
  std::string title;
  std::string x_label = {};
  std::string y_label = {};
  std::vector<Curve> curves = {};
  /// Whether the y axis has powers of ten; points that are not positive leave a gap.
  bool log_y = false;
};

struct PlotOptions {
  /// The size of each chart in pixels, 200 to 4000; charts are below each other.
  int width = 800;
  int height = 400;
};

/// Return the bytes of an SVG file (text) or of a PNG file with the charts below each other. Throw c10::ValueError for sizes out
/// of range.
COHORT_API std::string svg_plot(const std::vector<Chart>& charts, const PlotOptions& options = {});
COHORT_API std::string png_plot(const std::vector<Chart>& charts, const PlotOptions& options = {});
/// Replaces the file, which only its owner may read. Throws c10::ValueError for an ending other than .svg and .png.
COHORT_API void save_plot(const std::vector<Chart>& charts, const std::string& path, const PlotOptions& options = {});
[[deprecated("use save_plot(charts, path, options)")]] inline void save_plot(const std::string& path,
                                                                             const std::vector<Chart>& charts,
                                                                             const PlotOptions& options = {}) {
  save_plot(charts, path, options);
}

struct PlotLoggerOptions {
  /// A file of JsonLinesLogger with the numbers of earlier runs, where the curves begin. The constructor reads it.
  std::string history = {};
  /// Takes only steps before this one from the history.
  std::optional<int64_t> purge_step = {};
  PlotOptions plot = {};
};

/// Collects logged numbers and draws them in flush() and close(). There is a chart for each last part of the names ("loss" of
/// "train/loss"), and a curve for each name, except names that begin with "system/". A picture has room for 100 charts of the
/// default height; it shows the first ones, with a warning.
class COHORT_API PlotLogger : public Logger {
 public:
  explicit PlotLogger(std::string path, const PlotLoggerOptions& options = {});
  ~PlotLogger() override;
  void log_metrics(int64_t step, const Metrics& values) override;
  void flush() override;
  void close() override;
  std::vector<Chart> charts() const;

 private:
  std::string path_;
  PlotOptions options_;
  std::vector<Curve> curves_;
  bool is_changed_ = false;
};

}  // namespace cohort::train
