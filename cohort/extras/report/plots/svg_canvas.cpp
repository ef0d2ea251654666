#include <fmt/format.h>

#include "cohort/base/text/text.h"
#include "cohort/extras/report/plots/canvas.h"

namespace cohort::report {
namespace {

constexpr double kTitlePixels = 15, kLabelPixels = 12;

std::string color_word(Color color) { return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue); }

// Writes at most two decimal places, as people read the files, too.
std::string short_number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

// XML does not allow control characters.
std::string xml_text(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
    }
  }
  return escaped;
}

}  // namespace

SvgCanvas::SvgCanvas(int width, int height) {
  text_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"{2}\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      width, height, kLabelPixels);
}

void SvgCanvas::draw_box(Place corner, Place opposite, Color fill) {
  text_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", short_number(corner.x),
                       short_number(corner.y), short_number(opposite.x - corner.x), short_number(opposite.y - corner.y),
                       color_word(fill));
}

void SvgCanvas::draw_line(const std::vector<Place>& places, double width, Color color) {
  std::string path;
  for (const Place& place : places) {
    path += fmt::format("{}{},{}", path.empty() ? "" : " ", short_number(place.x), short_number(place.y));
  }
  text_ += fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linecap=\"round\" "
      "stroke-linejoin=\"round\"/>\n",
      path, color_word(color), short_number(width));
}

void SvgCanvas::draw_text(Place place, std::string_view text, const TextStyle& style) {
  if (text.empty()) return;
  const char* const anchors[] = {"start", "middle", "end"};
  std::string more;
  if (style.is_title) more += fmt::format(" font-size=\"{}\" font-weight=\"bold\"", kTitlePixels);
  const std::string x = short_number(place.x), y = short_number(place.y);
  if (style.is_upright) more += fmt::format(" transform=\"rotate(-90 {} {})\"", x, y);
  text_ +=
      fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" dominant-baseline=\"central\" fill=\"{}\"{}>{}</text>\n",
                  x, y, anchors[static_cast<int>(style.anchor)], color_word(style.color), more, xml_text(text));
}

}  // namespace cohort::report
