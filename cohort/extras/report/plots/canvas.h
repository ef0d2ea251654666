/// Canvas: the surface of a chart. The origin is at the top left; one unit is a pixel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::report {

struct Color {
  uint8_t red = 0, green = 0, blue = 0;
};

struct Place {
  double x = 0.0, y = 0.0;
};

enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  Anchor anchor = Anchor::kStart;
  Color color = {};
  bool is_title = false;
  /// Whether the text reads from bottom to top.
  bool is_upright = false;
};

class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual void draw_box(Place corner, Place opposite, Color fill) = 0;
  virtual void draw_line(const std::vector<Place>& places, double width, Color color) = 0;
  /// `place`: the middle of the text's height, and the point of its length that the anchor names.
  virtual void draw_text(Place place, std::string_view text, const TextStyle& style) = 0;
};

/// An upper bound for a text's width in pixels.
double text_width(std::string_view text, bool is_title);

/// An SVG file with the sizes and colors of the calls.
class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(int width, int height);
  void draw_box(Place corner, Place opposite, Color fill) override;
  void draw_line(const std::vector<Place>& places, double width, Color color) override;
  void draw_text(Place place, std::string_view text, const TextStyle& style) override;
  std::string finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

/// Pixels, three bytes each, initially white. Letters other than ASCII become "?".
class PixelCanvas final : public Canvas {
 public:
  PixelCanvas(int width, int height);
  void draw_box(Place corner, Place opposite, Color fill) override;
  void draw_line(const std::vector<Place>& places, double width, Color color) override;
  void draw_text(Place place, std::string_view text, const TextStyle& style) override;
  const std::vector<uint8_t>& pixels() const { return pixels_; }

 private:
  void blend(int x, int y, Color color, double part);
  void cover_segment(Place from, Place to, double width);
  void draw_letter(double x, double y, char letter, const TextStyle& style);
  int width_, height_;
  std::vector<uint8_t> pixels_;
  /// How much of each pixel the current line covers, and which pixels it touched.
  std::vector<float> coverage_;
  std::vector<size_t> touched_;
};

}  // namespace cohort::report
