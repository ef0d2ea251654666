#include "cohort/report/terminal/line_parts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cohort/base/text/utf8.h"

namespace cohort::report {
namespace {

constexpr std::string_view kBetweenParts = "  ";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kPlain = "\x1b[0m";

struct LetterRange {
  unsigned long first, last;
};
// East Asian letters and pictures, and marks on the letter before them.
constexpr LetterRange kWide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},  {0xac00, 0xd7a3},
                                 {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},  {0xffe0, 0xffe6},
                                 {0x1f300, 0x1f64f}, {0x1f680, 0x1faff}, {0x20000, 0x3fffd}};
constexpr LetterRange kMarks[] = {{0x300, 0x36f}, {0x200b, 0x200f}, {0xfe00, 0xfe0f}};

template <size_t kCount>
bool is_in(const LetterRange (&ranges)[kCount], unsigned long letter) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const LetterRange& range) { return letter >= range.first && letter <= range.last; });
}

struct Letter {
  size_t bytes, columns;
};
// Returns the first letter of a text that is not empty. An invalid byte counts as one letter.
Letter first_letter(std::string_view text) {
  unsigned long code = 0;
  const size_t bytes = base::decode_utf8(text, code);
  if (bytes == 0) return {1, 1};
  return {bytes, is_in(kWide, code) ? 2U : is_in(kMarks, code) ? 0U : 1U};
}

// Replaces control characters, which could move the cursor.
std::string without_controls(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }, '?');
  return text;
}

size_t width_of(const std::vector<LinePart>& parts) {
  size_t width = parts.empty() ? 0 : (parts.size() - 1) * kBetweenParts.size();
  for (const LinePart& part : parts) width += num_columns(part.text);
  return width;
}

}  // namespace

size_t num_columns(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const Letter letter = first_letter(text.substr(at));
    columns += letter.columns;
    at += letter.bytes;
  }
  return columns;
}

std::string_view first_columns(std::string_view text, size_t columns) {
  size_t end = 0;
  for (size_t seen = 0; end < text.size();) {
    const Letter letter = first_letter(text.substr(end));
    seen += letter.columns;
    if (seen > columns) break;
    end += letter.bytes;
  }
  return text.substr(0, end);
}

std::string fitted_line(const std::vector<LinePart>& all_parts, size_t columns, bool has_color) {
  std::vector<LinePart> parts = all_parts;
  for (LinePart& part : parts) part.text = without_controls(std::move(part.text));
  while (columns > 0 && parts.size() > 1 && width_of(parts) > columns) {
    const auto is_more_important = [](const LinePart& a, const LinePart& b) { return a.importance < b.importance; };
    const auto least = std::max_element(parts.rbegin(), parts.rend(), is_more_important);
    parts.erase(std::next(least).base());
  }
  if (columns > 0 && parts.size() == 1) parts[0].text = first_columns(parts[0].text, columns);
  std::string line;
  bool is_dim = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (has_color && parts[i].is_dim != is_dim) line += parts[i].is_dim ? kDim : kPlain;
    is_dim = parts[i].is_dim;
    line += (i > 0 ? std::string(kBetweenParts) : "") + parts[i].text;
  }
  return line + (has_color && is_dim ? kPlain : "");
}

}  // namespace cohort::report
