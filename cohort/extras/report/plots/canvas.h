/// Canvas: what a chart is drawn on. The origin is at the top left; one unit is a pixel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::report {

struct Colour {
  uint8_t red = 0, green = 0, blue = 0;
};

struct Place {
  double x = 0.0, y = 0.0;
};

enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  Anchor anchor = Anchor::kStart;
  Colour colour = {};
  bool is_title = false;
  /// Reads from the bottom to the top.
  bool is_upright = false;
};

class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual void draw_box(Place corner, Place opposite, Colour fill) = 0;
  virtual void draw_line(const std::vector<Place>& places, double width, Colour colour) = 0;
  /// `place`: the middle of the text's height, and of its length where the anchor says.
  virtual void draw_text(Place place, std::string_view text, const TextStyle& style) = 0;
};

/// Pixels that a text takes at most.
double text_width(std::string_view text, bool is_title);

/// An SVG file. The sizes and colours are those of the calls.
class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(int width, int height);
  void draw_box(Place corner, Place opposite, Colour fill) override;
  void draw_line(const std::vector<Place>& places, double width, Colour colour) override;
  void draw_text(Place place, std::string_view text, const TextStyle& style) override;
  std::string finish() const { return text_ + "</svg>\n"; }

 private:
  std::string text_;
};

/// Pixels, three bytes each, white before anything is drawn. Letters are those of ASCII; others are "?".
class PixelCanvas final : public Canvas {
 public:
  PixelCanvas(int width, int height);
  void draw_box(Place corner, Place opposite, Colour fill) override;
  void draw_line(const std::vector<Place>& places, double width, Colour colour) override;
  void draw_text(Place place, std::string_view text, const TextStyle& style) override;
  const std::vector<uint8_t>& pixels() const { return pixels_; }

 private:
  void blend(int x, int y, Colour colour, double part);
  void cover_segment(Place from, Place to, double width);
  void draw_letter(double x, double y, char letter, const TextStyle& style);
  int width_, height_;
  std::vector<uint8_t> pixels_;
  /// How much of each pixel the line being drawn covers, and which it touched.
  std::vector<float> coverage_;
  std::vector<size_t> touched_;
};

}  // namespace cohort::report
