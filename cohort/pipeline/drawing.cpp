#include "cohort/pipeline/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cohort/pipeline/action_text.h"

namespace cohort::pipeline {
namespace {

constexpr double kMostColumns = 10000.0;
constexpr double kRowHeight = 30.0, kLeft = 70.0, kTop = 30.0, kLargestWidth = 20000.0;

size_t widest_label(const Timeline& timeline) {
  size_t widest = 1;
  for (const auto& list : timeline.ranks) {
    for (const TimedAction& each : list) widest = std::max(widest, text_of(each.action).size());
  }
  return widest;
}

size_t column_of(double time, double unit) {
  return static_cast<size_t>(std::clamp(std::round(time / unit), 0.0, kMostColumns));
}

const char* color_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "#7aa6d8";
    case ActionKind::kBackwardInput:
      return "#8fc9a3";
    case ActionKind::kBackwardWeight:
      return "#d9c36b";
    default:
      return "#79b99b";
  }
}

std::string box(const TimedAction& each, double row, double scale) {
  const double x = kLeft + each.begin * scale, width = (each.end - each.begin) * scale;
  const double y = kTop + row * kRowHeight;
  const std::string label = text_of(each.action);
  std::string text = fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"#ffffff\"/>\n", x, y,
      width, kRowHeight - 4.0, color_of(each.action.kind));
  if (width < 6.5 * static_cast<double>(label.size())) return text;
  return text + fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x + width / 2.0,
                            y + 17.0, label);
}

}  // namespace

std::string text_drawing(const Timeline& timeline, double unit) {
  const size_t width = widest_label(timeline), num_columns = column_of(timeline.duration, unit);
  const size_t digits = std::to_string(timeline.ranks.size()).size();
  std::string drawing;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const std::string idle = "." + std::string(width - 1, ' '), going_on(width, '=');
    std::vector<std::string> cells(num_columns, idle);
    for (const TimedAction& each : timeline.ranks[rank]) {
      const size_t begin = column_of(each.begin, unit), end = column_of(each.end, unit);
      for (size_t column = begin; column < end; ++column) cells[column] = going_on;
      std::string label = text_of(each.action);
      label.resize(width, ' ');
      if (begin < end) cells[begin] = label;
    }
    std::string line = fmt::format("rank {:<{}} ", rank, digits);
    for (const std::string& cell : cells) line += " " + cell;
    line.erase(line.find_last_not_of(' ') + 1);
    drawing += line + "\n";
  }
  return drawing;
}

std::string svg_drawing(const Timeline& timeline) {
  // Wide enough for the label of the shortest box, if that is possible.
  double shortest = timeline.duration;
  for (const auto& list : timeline.ranks) {
    for (const TimedAction& each : list) {
      if (each.end > each.begin) shortest = std::min(shortest, each.end - each.begin);
    }
  }
  double scale = shortest > 0.0 ? 8.0 * static_cast<double>(widest_label(timeline)) / shortest : 1.0;
  if (timeline.duration * scale > kLargestWidth) scale = kLargestWidth / timeline.duration;
  const double height = kTop + kRowHeight * static_cast<double>(timeline.ranks.size()) + 10.0;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n",
      kLeft + timeline.duration * scale + 10.0, height);
  svg += fmt::format("<text x=\"10\" y=\"18\">bubble {:.1f} %</text>\n", 100.0 * timeline.bubble());
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const auto row = static_cast<double>(rank);
    svg += fmt::format("<text x=\"10\" y=\"{:.1f}\">rank {}</text>\n", kTop + row * kRowHeight + 17.0, rank);
    for (const TimedAction& each : timeline.ranks[rank]) svg += box(each, row, scale);
  }
  return svg + "</svg>\n";
}

}  // namespace cohort::pipeline
