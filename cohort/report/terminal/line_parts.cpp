#include "cohort/report/terminal/line_parts.h"

#include <algorithm>

namespace cohort::report {
namespace {

constexpr std::string_view kBetweenParts = "  ";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";

bool begins_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

size_t width_of(const std::vector<LinePart>& parts) {
  size_t width = parts.empty() ? 0 : (parts.size() - 1) * kBetweenParts.size();
  for (const LinePart& part : parts) width += num_columns(part.text);
  return width;
}

}  // namespace

size_t num_columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_letter));
}

std::string_view first_columns(std::string_view text, size_t columns) {
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if (begins_letter(text[end]) && seen++ == columns) break;
  }
  return text.substr(0, end);
}

std::string fitted_line(const std::vector<LinePart>& all_parts, size_t columns, bool has_colour) {
  std::vector<LinePart> parts = all_parts;
  while (columns > 0 && parts.size() > 1 && width_of(parts) > columns) {
    const auto is_more_important = [](const LinePart& a, const LinePart& b) { return a.importance < b.importance; };
    const auto least = std::max_element(parts.rbegin(), parts.rend(), is_more_important);
    parts.erase(std::next(least).base());
  }
  if (columns > 0 && parts.size() == 1) parts[0].text = first_columns(parts[0].text, columns);
  std::string line;
  bool is_dim = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (has_colour && parts[i].is_dim != is_dim) line += parts[i].is_dim ? kDim : kPlain;
    is_dim = parts[i].is_dim;
    line += (i > 0 ? std::string(kBetweenParts) : "") + parts[i].text;
  }
  return line + (has_colour && is_dim ? kPlain : "");
}

}  // namespace cohort::report
