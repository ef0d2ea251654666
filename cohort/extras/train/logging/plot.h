/// Curves as a picture: SVG or PNG, by the ending of the file's name. What `--plot` of the examples draws.
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
  /// Powers of ten along the y axis; points that are not positive leave a gap.
  bool log_y = false;
};

struct PlotOptions {
  /// Of each chart, in pixels; charts stand below each other. 200 to 4000.
  int width = 800;
  int height = 400;
};

/// Charts below each other, as the bytes of an SVG file (text) or of a PNG file. c10::ValueError for sizes out of range.
COHORT_API std::string svg_plot(const std::vector<Chart>& charts, const PlotOptions& options = {});
COHORT_API std::string png_plot(const std::vector<Chart>& charts, const PlotOptions& options = {});
/// Replaces the file, which only its owner may read. c10::ValueError for an ending other than .svg and .png.
COHORT_API void save_plot(const std::string& path, const std::vector<Chart>& charts, const PlotOptions& options = {});

struct PlotLoggerOptions {
  /// A file of JsonLinesLogger with what earlier runs logged: the curves begin there. Opened by the constructor.
  std::string history = {};
  /// Of the history only steps before this one are taken.
  std::optional<int64_t> purge_step = {};
  PlotOptions plot = {};
};

/// Keeps what is logged and draws it at flush() and close(). A chart for each last part of the names ("loss" of "train/loss"),
/// a curve for each name, without those that begin with "system/". A picture has room for 100 charts of the usual height: the
/// first ones, as a warning says.
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
