#include "cohort/extras/train/logging/plot.h"

#include <algorithm>
#include <utility>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/log/log.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/extras/report/plots/chart.h"
#include "cohort/report/records/append_file.h"
#include "cohort/report/records/json_lines_log.h"
#include "cohort/train/logging/close_quietly.h"

namespace cohort::train {
namespace {

constexpr const char* kPlot = "plot";

std::vector<report::PlotChart> plain_charts(const std::vector<Chart>& charts) {
  std::vector<report::PlotChart> plain;
  for (const Chart& chart : charts) {
    plain.push_back({chart.title, chart.x_label, chart.y_label, {}, chart.log_y});
    for (const Curve& curve : chart.curves) plain.back().curves.push_back({curve.name, curve.points});
  }
  return plain;
}

bool ends_with(const std::string& path, std::string_view ending) {
  return path.size() > ending.size() && path.ends_with(ending);
}

void check_plot_path(const std::string& path) {
  TORCH_CHECK_VALUE(ends_with(path, ".svg") || ends_with(path, ".png"),
                    "[cohort] plot: the name of a picture ends in .svg or ", ".png, but got \"", path, "\"");
}

// System metrics (system_metrics.h) are only in the other files, as their many curves would hide those of training.
void add_points(std::vector<Curve>& curves, int64_t step, const Metrics& values) {
  for (const auto& [name, value] : values) {
    if (name.starts_with("system/")) continue;
    auto curve = std::find_if(curves.begin(), curves.end(), [&](const Curve& other) { return other.name == name; });
    if (curve == curves.end()) curve = curves.insert(curves.end(), Curve{name, {}});
    curve->points.emplace_back(static_cast<double>(step), value);
  }
}

}  // namespace

std::string svg_plot(const std::vector<Chart>& charts, const PlotOptions& options) {
  return comm::or_throw_value(report::plot_svg(plain_charts(charts), {options.width, options.height}), kPlot);
}

std::string png_plot(const std::vector<Chart>& charts, const PlotOptions& options) {
  return comm::or_throw_value(report::plot_png(plain_charts(charts), {options.width, options.height}), kPlot);
}

void save_plot(const std::vector<Chart>& charts, const std::string& path, const PlotOptions& options) {
  check_plot_path(path);
  const std::string picture = ends_with(path, ".svg") ? svg_plot(charts, options) : png_plot(charts, options);
  const size_t slash = path.find_last_of('/');
  if (slash != std::string::npos) comm::or_throw(report::make_private_folder(path.substr(0, slash)), kPlot);
  comm::or_throw(base::write_file_atomically(path, picture), kPlot);
}

PlotLogger::PlotLogger(std::string path, const PlotLoggerOptions& options)
    : path_(std::move(path)), options_(options.plot) {
  check_plot_path(path_);
  if (options.history.empty()) return;
  const auto take = [&](const report::RunRecord& record) {
    if (options.purge_step && record.step >= *options.purge_step) return;
    add_points(curves_, record.step, record.values);
  };
  comm::or_throw(report::read_json_lines(options.history, take), kPlot);
}

PlotLogger::~PlotLogger() {
  detail::close_quietly([this] { flush(); });
}

void PlotLogger::log_metrics(int64_t step, const Metrics& values) {
  TORCH_CHECK_VALUE(step >= 0, "[cohort] PlotLogger: a step is not negative, but got ", step);
  add_points(curves_, step, values);
  is_changed_ = true;
}

void PlotLogger::flush() {
  if (!is_changed_) return;
  std::vector<Chart> drawn = charts();
  const size_t most = report::most_charts({options_.width, options_.height});
  if (drawn.size() > most) {
    base::warn_once("PlotLogger: \"" + path_ + "\" shows the first " + std::to_string(most) +
                    " charts; a picture has room for no more");
    drawn.resize(most);
  }
  save_plot(drawn, path_, options_);
  is_changed_ = false;
}

void PlotLogger::close() { flush(); }

std::vector<Chart> PlotLogger::charts() const {
  std::vector<report::PlotCurve> plain;
  for (const Curve& curve : curves_) plain.push_back({curve.name, curve.points});
  std::vector<Chart> charts;
  for (report::PlotChart& chart : report::charts_by_name(plain, "step")) {
    charts.push_back({chart.title, chart.x_label, chart.y_label, {}, chart.log_y});
    for (report::PlotCurve& curve : chart.curves) charts.back().curves.push_back({curve.name, std::move(curve.points)});
  }
  return charts;
}

}  // namespace cohort::train
