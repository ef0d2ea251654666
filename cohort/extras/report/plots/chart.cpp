#include "cohort/extras/report/plots/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cohort/extras/files/images/image_writer.h"
#include "cohort/extras/report/plots/axis.h"
#include "cohort/extras/report/plots/canvas.h"
#include "cohort/report/terminal/line_parts.h"

namespace cohort::report {
namespace {

constexpr Color kBlack{40, 40, 40}, kGridColor{225, 225, 225}, kFrameColor{150, 150, 150};
// Colors that people with red-green color blindness can distinguish (Okabe and Ito).
constexpr Color kCurveColors[] = {{0, 114, 178}, {213, 94, 0},   {0, 158, 115},  {204, 121, 167},
                                  {230, 159, 0}, {86, 180, 233}, {128, 128, 128}};
constexpr size_t kNumColors = std::size(kCurveColors);
constexpr double kCurveWidth = 1.75, kPointWidth = 6;
constexpr int kSmallestSide = 200, kLargestSide = 4000, kMostRows = 40000;

struct Frame {
  double left, top, right, bottom;
};

struct Range {
  double low, high;
};

bool is_drawn(const std::pair<double, double>& point, bool log_y) {
  return std::isfinite(point.first) && std::isfinite(point.second) && (!log_y || point.second > 0.0);
}

// Absent if no point can be drawn.
template <typename Of>
std::optional<Range> range_of(const PlotChart& chart, Of of) {
  std::optional<Range> range;
  for (const PlotCurve& curve : chart.curves) {
    for (const auto& point : curve.points) {
      if (!is_drawn(point, chart.log_y)) continue;
      const double value = of(point);
      range = range ? Range{std::min(range->low, value), std::max(range->high, value)} : Range{value, value};
    }
  }
  return range;
}

// Points of a curve between two gaps. For many points in one column of pixels, draws only the first, the lowest, the highest and
// the last, which look the same.
class Thinned {
 public:
  void add(Place place) {
    if (column_.empty() || std::floor(column_.front().x) == std::floor(place.x)) return column_.push_back(place);
    take_column();
    column_.push_back(place);
  }
  std::vector<Place> finish() {
    take_column();
    return std::move(places_);
  }

 private:
  void take_column() {
    if (column_.size() <= 4) {
      places_.insert(places_.end(), column_.begin(), column_.end());
    } else {
      const auto is_higher = [](const Place& a, const Place& b) { return a.y < b.y; };
      auto [first, second] = std::minmax_element(column_.begin(), column_.end(), is_higher);
      if (second < first) std::swap(first, second);
      places_.insert(places_.end(), {column_.front(), *first, *second, column_.back()});
    }
    column_.clear();
  }
  std::vector<Place> places_, column_;
};

void draw_run(Canvas& canvas, Thinned& run, Color color) {
  std::vector<Place> places = run.finish();
  run = {};
  if (places.empty()) return;
  const bool is_point = places.size() == 1;
  if (is_point) places.push_back(places[0]);
  canvas.draw_line(places, is_point ? kPointWidth : kCurveWidth, color);
}

// Maps the numbers of a chart to places.
struct Plane {
  Axis x, y;
  Frame frame;
  bool log_y = false;

  double across(double value) const { return frame.left + x.place(value) * (frame.right - frame.left); }
  double down(double value) const { return frame.bottom - y.place(value) * (frame.bottom - frame.top); }
};

void draw_curve(Canvas& canvas, const PlotCurve& curve, const Plane& plane, Color color) {
  Thinned run;
  for (const auto& point : curve.points) {
    if (is_drawn(point, plane.log_y)) {
      run.add({plane.across(point.first), plane.down(point.second)});
    } else {
      draw_run(canvas, run, color);
    }
  }
  draw_run(canvas, run, color);
}

double widest_label(const Axis& axis) {
  double widest = 0.0;
  for (const Tick& tick : axis.ticks()) widest = std::max(widest, text_width(tick.label, false));
  return widest;
}

void draw_axes(Canvas& canvas, const PlotChart& chart, const Plane& plane) {
  const Frame& frame = plane.frame;
  for (const Tick& tick : plane.x.ticks()) {
    const double at = plane.across(tick.value);
    canvas.draw_line({{at, frame.top}, {at, frame.bottom}}, 1, kGridColor);
    canvas.draw_text({at, frame.bottom + 12}, tick.label, {Anchor::kMiddle, kBlack});
  }
  for (const Tick& tick : plane.y.ticks()) {
    const double at = plane.down(tick.value);
    canvas.draw_line({{frame.left, at}, {frame.right, at}}, 1, kGridColor);
    canvas.draw_text({frame.left - 6, at}, tick.label, {Anchor::kEnd, kBlack});
  }
  canvas.draw_line({{frame.left, frame.top}, {frame.left, frame.bottom}, {frame.right, frame.bottom}}, 1, kFrameColor);
  const TextStyle upright{.anchor = Anchor::kMiddle, .color = kBlack, .is_upright = true};
  canvas.draw_text({(frame.left + frame.right) / 2, frame.bottom + 30}, chart.x_label, {Anchor::kMiddle, kBlack});
  canvas.draw_text({14, (frame.top + frame.bottom) / 2}, chart.y_label, upright);
}

constexpr double kLegendRow = 18, kLegendSample = 22, kLegendMargin = 8;
constexpr size_t kLongestLegend = 28;  // letters; longer names are truncated

double legend_width(const PlotChart& chart) {
  double widest = 0.0;
  for (const PlotCurve& curve : chart.curves) {
    widest = std::max(widest, text_width(first_columns(curve.name, kLongestLegend), false));
  }
  return widest == 0.0 ? 0.0 : widest + kLegendSample + 2 * kLegendMargin;
}

// Draws right of the frame, where there are no curves.
void draw_legend(Canvas& canvas, const PlotChart& chart, const Frame& frame) {
  if (legend_width(chart) == 0.0) return;
  const double left = frame.right + kLegendMargin;
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const double at = frame.top + kLegendRow * (static_cast<double>(i) + 0.5);
    canvas.draw_line({{left, at}, {left + kLegendSample, at}}, kCurveWidth, kCurveColors[i % kNumColors]);
    const std::string_view name = first_columns(chart.curves[i].name, kLongestLegend);
    canvas.draw_text({left + kLegendSample + kLegendMargin, at}, name, {Anchor::kStart, kBlack});
  }
}

void draw_chart(Canvas& canvas, const PlotChart& chart, PlotSize size, double top) {
  const auto x_range = range_of(chart, [](const auto& point) { return point.first; });
  const auto y_range = range_of(chart, [](const auto& point) { return point.second; });
  const double center = size.width / 2.0;
  canvas.draw_text({center, top + 18}, chart.title, {Anchor::kMiddle, kBlack, /*is_title=*/true});
  if (!x_range || !y_range) {
    canvas.draw_text({center, top + size.height / 2.0}, "no numbers to draw", {Anchor::kMiddle, kBlack});
    return;
  }
  const double y_room = chart.y_label.empty() ? 0 : 18, x_room = chart.x_label.empty() ? 28 : 44;
  Frame frame{.left = 0,
              .top = top + 36,
              .right = std::max(size.width - 24.0 - legend_width(chart), size.width / 2.0),
              .bottom = top + size.height - x_room};
  const auto ticks = [](double pixels, double each) { return static_cast<int>(pixels / each); };
  const Axis y(y_range->low, y_range->high, ticks(frame.bottom - frame.top, 40), chart.log_y);
  frame.left = 16 + y_room + widest_label(y);
  frame.right = std::max(frame.right, frame.left + size.width / 5.0);  // a narrow picture truncates the legend
  const Axis x(x_range->low, x_range->high, ticks(frame.right - frame.left, 80));
  const Plane plane{x, y, frame, chart.log_y};
  draw_axes(canvas, chart, plane);
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    draw_curve(canvas, chart.curves[i], plane, kCurveColors[i % kNumColors]);
  }
  draw_legend(canvas, chart, frame);
}

base::Result<int> height_of_all(const std::vector<PlotChart>& charts, PlotSize size) {
  const auto is_right = [](int side) { return side >= kSmallestSide && side <= kLargestSide; };
  if (!is_right(size.width) || !is_right(size.height)) {
    return base::Error(fmt::format("a chart of {} x {} pixels cannot be drawn: sides are {} to {}", size.width,
                                   size.height, kSmallestSide, kLargestSide));
  }
  const auto count = static_cast<int64_t>(std::max<size_t>(charts.size(), 1));
  if (count * size.height > kMostRows) {
    return base::Error(fmt::format("{} charts of {} rows of pixels are too many for one picture, which has {} at most",
                                   count, size.height, kMostRows));
  }
  return static_cast<int>(count * size.height);
}

void draw_all(Canvas& canvas, const std::vector<PlotChart>& charts, PlotSize size) {
  for (size_t i = 0; i < charts.size(); ++i) draw_chart(canvas, charts[i], size, static_cast<double>(i) * size.height);
}

}  // namespace

size_t most_charts(PlotSize size) { return static_cast<size_t>(kMostRows / std::max(size.height, kSmallestSide)); }

base::Result<std::string> plot_svg(const std::vector<PlotChart>& charts, PlotSize size) {
  const auto height = height_of_all(charts, size);
  if (!height) return height.error();
  SvgCanvas canvas(size.width, *height);
  draw_all(canvas, charts, size);
  return canvas.finish();
}

base::Result<std::string> plot_png(const std::vector<PlotChart>& charts, PlotSize size) {
  const auto height = height_of_all(charts, size);
  if (!height) return height.error();
  PixelCanvas canvas(size.width, *height);
  draw_all(canvas, charts, size);
  const files::ImageShape shape{static_cast<uint32_t>(*height), static_cast<uint32_t>(size.width), 3};
  return files::encode_png({canvas.pixels().data(), shape, files::ImageLayout::kInterleaved});
}

std::vector<PlotChart> charts_by_name(const std::vector<PlotCurve>& curves, const std::string& x_label) {
  std::vector<PlotChart> charts;
  for (const PlotCurve& curve : curves) {
    const size_t slash = curve.name.find_last_of('/');
    const std::string title = slash == std::string::npos ? curve.name : curve.name.substr(slash + 1);
    const std::string name = slash == std::string::npos ? "" : curve.name.substr(0, slash);
    auto chart =
        std::find_if(charts.begin(), charts.end(), [&](const PlotChart& other) { return other.title == title; });
    if (chart == charts.end()) chart = charts.insert(charts.end(), PlotChart{.title = title, .x_label = x_label});
    chart->curves.push_back({name, curve.points});
  }
  return charts;
}

}  // namespace cohort::report
