#include <algorithm>
#include <cmath>

#include "cohort/extras/report/plots/canvas.h"
#include "cohort/extras/report/plots/letters.h"
#include "cohort/report/terminal/line_parts.h"

namespace cohort::report {
namespace {

// The width and height of a letter's pixel, in pixels.
double letter_scale(bool is_title) { return is_title ? 2.0 : 1.5; }
double letter_advance(bool is_title) { return (kLetterWidth + 1) * letter_scale(is_title); }

double distance_to_segment(double x, double y, Place from, Place to) {
  const double dx = to.x - from.x, dy = to.y - from.y;
  const double length = dx * dx + dy * dy;
  const double part = length > 0.0 ? std::clamp(((x - from.x) * dx + (y - from.y) * dy) / length, 0.0, 1.0) : 0.0;
  return std::hypot(x - from.x - part * dx, y - from.y - part * dy);
}

// Returns how much of [low, high] lies in [pixel, pixel + 1].
double overlap(double low, double high, int pixel) {
  return std::clamp(std::min(high, pixel + 1.0) - std::max(low, static_cast<double>(pixel)), 0.0, 1.0);
}

}  // namespace

double text_width(std::string_view text, bool is_title) {
  return static_cast<double>(num_columns(text)) * letter_advance(is_title);
}

PixelCanvas::PixelCanvas(int width, int height)
    : width_(width),
      height_(height),
      pixels_(size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height), 255),
      coverage_(static_cast<size_t>(width) * static_cast<size_t>(height), 0.0F) {}

void PixelCanvas::blend(int x, int y, Color color, double part) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_ || part <= 0.0) return;
  uint8_t* pixel = &pixels_[3 * (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x))];
  const uint8_t wanted[] = {color.red, color.green, color.blue};
  for (int i = 0; i < 3; ++i) pixel[i] = static_cast<uint8_t>(std::lround(pixel[i] + part * (wanted[i] - pixel[i])));
}

void PixelCanvas::draw_box(Place corner, Place opposite, Color fill) {
  for (int y = static_cast<int>(std::floor(corner.y)); y < opposite.y; ++y) {
    for (int x = static_cast<int>(std::floor(corner.x)); x < opposite.x; ++x) {
      blend(x, y, fill, overlap(corner.x, opposite.x, x) * overlap(corner.y, opposite.y, y));
    }
  }
}

// Draws all segments together, so that no pixel is drawn twice.
void PixelCanvas::draw_line(const std::vector<Place>& places, double width, Color color) {
  for (size_t i = 0; i + 1 < places.size(); ++i) cover_segment(places[i], places[i + 1], width);
  for (const size_t at : touched_) {
    const auto row = at / static_cast<size_t>(width_), column = at % static_cast<size_t>(width_);
    blend(static_cast<int>(column), static_cast<int>(row), color, coverage_[at]);
    coverage_[at] = 0.0F;
  }
  touched_.clear();
}

void PixelCanvas::cover_segment(Place from, Place to, double width) {
  const double reach = width / 2 + 0.5;
  const auto first = [&](double value) { return std::max(0, static_cast<int>(std::floor(value - reach))); };
  const auto last = [&](double value, int side) {
    return std::min(side - 1, static_cast<int>(std::ceil(value + reach)));
  };
  for (int y = first(std::min(from.y, to.y)); y <= last(std::max(from.y, to.y), height_); ++y) {
    for (int x = first(std::min(from.x, to.x)); x <= last(std::max(from.x, to.x), width_); ++x) {
      const double part = std::clamp(reach - distance_to_segment(x + 0.5, y + 0.5, from, to), 0.0, 1.0);
      if (part == 0.0) continue;
      const size_t at = static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x);
      if (coverage_[at] == 0.0F) touched_.push_back(at);
      coverage_[at] = std::max(coverage_[at], static_cast<float>(part));
    }
  }
}

void PixelCanvas::draw_text(Place place, std::string_view text, const TextStyle& style) {
  if (text.empty()) return;
  const double scale = letter_scale(style.is_title), length = text_width(text, style.is_title) - scale;
  const double before = style.anchor == Anchor::kStart ? 0.0 : style.anchor == Anchor::kEnd ? length : length / 2;
  double along = -before;
  while (!text.empty()) {
    const std::string_view letter = first_columns(text, 1);
    text.remove_prefix(letter.size());
    const double half = kLetterHeight * scale / 2;
    if (style.is_upright) {
      draw_letter(place.x - half, place.y - along, letter.size() == 1 ? letter[0] : '?', style);
    } else {
      draw_letter(place.x + along, place.y - half, letter.size() == 1 ? letter[0] : '?', style);
    }
    along += letter_advance(style.is_title);
  }
}

// For upright text, the letter's right side points up.
void PixelCanvas::draw_letter(double x, double y, char letter, const TextStyle& style) {
  const double scale = letter_scale(style.is_title);
  for (int row = 0; row < kLetterHeight; ++row) {
    for (int column = 0; column < kLetterWidth; ++column) {
      if (!letter_has_pixel(letter, column, row)) continue;
      const double left = style.is_upright ? x + row * scale : x + column * scale;
      const double top = style.is_upright ? y - (column + 1) * scale : y + row * scale;
      draw_box({left, top}, {left + scale, top + scale}, style.color);
    }
  }
}

}  // namespace cohort::report
