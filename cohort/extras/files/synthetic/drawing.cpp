#include "cohort/extras/files/synthetic/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace cohort::files {
namespace {

constexpr int kNumShapes = 5;

struct Point {
  double x = 0;
  double y = 0;
};
using Stroke = std::vector<Point>;

Stroke ellipse(Point center, double radius_x, double radius_y) {
  Stroke stroke;
  for (int i = 0; i <= 16; ++i) {
    const double angle = i * 2 * M_PI / 16;
    stroke.push_back({center.x + radius_x * std::cos(angle), center.y + radius_y * std::sin(angle)});
  }
  return stroke;
}

// Coordinates are in a square from (0, 0) at the top left to (1, 1).
std::vector<Stroke> strokes_of(int digit) {
  switch (digit) {
    case 0:
      return {ellipse({.5, .5}, .22, .34)};
    case 1:
      return {{{.36, .3}, {.52, .16}, {.52, .84}}};
    case 2:
      return {{{.3, .3}, {.36, .19}, {.5, .15}, {.64, .2}, {.69, .32}, {.62, .46}, {.3, .82}, {.72, .82}}};
    case 3:
      return {
          {{.32, .2}, {.5, .15}, {.66, .22}, {.66, .38}, {.5, .48}, {.68, .58}, {.69, .74}, {.52, .85}, {.31, .78}}};
    case 4:
      return {{{.58, .84}, {.58, .16}, {.28, .62}, {.74, .62}}};
    case 5:
      return {{{.68, .17}, {.37, .17}, {.34, .46}, {.52, .42}, {.68, .52}, {.68, .72}, {.52, .85}, {.31, .78}}};
    case 6:
      return {
          {{.62, .16}, {.42, .34}, {.33, .6}, {.38, .78}, {.52, .85}, {.67, .74}, {.66, .58}, {.52, .5}, {.36, .6}}};
    case 7:
      return {{{.29, .17}, {.71, .17}, {.46, .84}}};
    case 8:
      return {ellipse({.5, .32}, .16, .16), ellipse({.5, .67}, .2, .18)};
    default:
      return {
          {{.38, .84}, {.58, .66}, {.67, .4}, {.62, .22}, {.48, .15}, {.33, .26}, {.34, .42}, {.48, .5}, {.64, .4}}};
  }
}

double distance(Point p, Point a, Point b) {
  const Point along{b.x - a.x, b.y - a.y};
  const double length = along.x * along.x + along.y * along.y;
  const double place = length > 0 ? ((p.x - a.x) * along.x + (p.y - a.y) * along.y) / length : 0;
  const double t = std::clamp(place, 0.0, 1.0);
  return std::hypot(p.x - a.x - t * along.x, p.y - a.y - t * along.y);
}

// Maps pixels to coordinates of the picture before it was moved, rotated and scaled.
class Placement {
 public:
  Placement(double max_angle, double max_shift, double min_scale, SampleGenerator& random)
      : angle_(random.uniform(-max_angle, max_angle)),
        scale_(random.uniform(min_scale, 1.1)),
        shift_{random.uniform(-max_shift, max_shift), random.uniform(-max_shift, max_shift)} {}

  Point of(int x, int y, int side) const {
    const double dx = (x + 0.5) / side - 0.5 - shift_.x;
    const double dy = (y + 0.5) / side - 0.5 - shift_.y;
    const double cosine = std::cos(angle_) / scale_;
    const double sine = std::sin(angle_) / scale_;
    return {0.5 + cosine * dx + sine * dy, 0.5 - sine * dx + cosine * dy};
  }

 private:
  double angle_;
  double scale_;
  Point shift_;
};

uint8_t to_byte(double value) { return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0, 1.0) * 255)); }

// Returns 1 inside and 0 outside, with a soft edge. Coordinates are from -1 to 1.
double coverage(int shape, double x, double y) {
  const double radius = std::hypot(x, y);
  double inside = 0;  // distance from the edge
  if (shape == 0) inside = 0.7 - radius;
  if (shape == 1) inside = 0.6 - std::max(std::abs(x), std::abs(y));
  if (shape == 2) inside = std::min(0.6 - y, 0.5 + 0.55 * y - std::abs(x));
  if (shape == 3) inside = 0.18 - std::abs(radius - 0.55);
  if (shape == 4) inside = std::max(0.2 - std::abs(x), 0.2 - std::abs(y));
  return std::clamp(inside * 8 + 0.5, 0.0, 1.0);
}

// Returns red, green and blue of a hue in [0, 1), at full saturation.
std::array<double, 3> color_of(double hue) {
  const auto part = [&](double offset) {
    const double place = hue + offset - std::floor(hue + offset);
    return std::clamp(std::abs(place * 6 - 3) - 1, 0.0, 1.0);
  };
  return {part(0), part(2.0 / 3), part(1.0 / 3)};
}

}  // namespace

std::vector<uint8_t> draw_digit(int digit, int side, SampleGenerator& random) {
  const Placement placement(0.3, 0.08, 0.8, random);
  const double thickness = random.uniform(0.025, 0.07);
  const double noise = random.uniform(0, 0.2);
  const auto strokes = strokes_of(digit);
  std::vector<uint8_t> pixels;
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      const Point point = placement.of(x, y, side);
      double nearest = 1;
      for (const Stroke& stroke : strokes) {
        for (size_t i = 1; i < stroke.size(); ++i)
          nearest = std::min(nearest, distance(point, stroke[i - 1], stroke[i]));
      }
      const double ink = std::clamp((thickness - nearest) * side + 0.5, 0.0, 1.0);
      pixels.push_back(to_byte(ink * 0.95 + random.uniform(0, noise)));
    }
  }
  return pixels;
}

std::vector<uint8_t> draw_shape(int label, int num_classes, int side, SampleGenerator& random) {
  const Placement placement(0.3, 0.1, 0.85, random);
  const int num_hues = num_classes / kNumShapes;
  const int hue = label / kNumShapes;
  const auto color = color_of((hue + random.uniform(-0.2, 0.2)) / num_hues);
  const auto ground = color_of(random.uniform(0, 1));
  const double brightness = random.uniform(0.7, 1);
  std::vector<uint8_t> pixels(static_cast<size_t>(3) * side * side);
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      const Point point = placement.of(x, y, side);
      const double inside = coverage(label % kNumShapes, 2 * point.x - 1, 2 * point.y - 1);
      for (int channel = 0; channel < 3; ++channel) {
        const double value = inside * color[channel] * brightness + (1 - inside) * ground[channel] * 0.35;
        pixels[(static_cast<size_t>(channel) * side + y) * side + x] = to_byte(value + random.uniform(0, 0.08));
      }
    }
  }
  return pixels;
}

std::vector<std::string> shape_class_names(int num_classes) {
  const char* const shapes[] = {"disc", "square", "triangle", "ring", "cross"};
  std::vector<std::string> names;
  for (int label = 0; label < num_classes; ++label) {
    names.push_back(fmt::format("{}_of_color_{}", shapes[label % kNumShapes], label / kNumShapes));
  }
  return names;
}

}  // namespace cohort::files
