#include "cohort/extras/files/arrays/npy_header.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <optional>

namespace cohort::files {
namespace {

constexpr size_t kMaxNpyDims = 64;

struct NpyType {
  std::string_view code;  ///< without the byte order
  DType dtype;
};
constexpr NpyType kNpyTypes[] = {{"b1", DType::kBool},      {"u1", DType::kUInt8},      {"i1", DType::kInt8},
                                 {"u2", DType::kUInt16},    {"i2", DType::kInt16},      {"u4", DType::kUInt32},
                                 {"i4", DType::kInt32},     {"u8", DType::kUInt64},     {"i8", DType::kInt64},
                                 {"f2", DType::kFloat16},   {"f4", DType::kFloat32},    {"f8", DType::kFloat64},
                                 {"c8", DType::kComplex64}, {"c16", DType::kComplex128}};

class NpyHeaderParser {
 public:
  explicit NpyHeaderParser(std::string_view text) : text_(text) {}

  NpyHeader parse() {
    if (!take('{')) return fault("'{'");
    while (!take('}')) {
      const size_t begin = position_;
      const auto key = quoted();
      if (!key || !take(':')) return fault("a key of the header in quotes, and ':'");
      if (auto problem = value(*key, begin)) return *std::move(problem);
      if (take(',')) continue;
      if (take('}')) break;
      return fault("',' or '}'");
    }
    skip_spaces();
    if (position_ < text_.size()) return fault("nothing after the header's '}'");
    if (!has_descr_ || !has_order_ || !has_shape_) {
      return NpyFault{0, "the keys 'descr', 'fortran_order' and 'shape'", "a header without all of them"};
    }
    return layout_;
  }

 private:
  void skip_spaces() {
    while (position_ < text_.size() && std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos) {
      ++position_;
    }
  }
  bool take(char wanted) {
    skip_spaces();
    if (position_ >= text_.size() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_spaces();
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }

  std::optional<std::string_view> quoted() {
    skip_spaces();
    const char quote = position_ < text_.size() ? text_[position_] : ' ';
    if (quote != '\'' && quote != '"') return std::nullopt;
    const size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    const auto inside = text_.substr(position_ + 1, end - position_ - 1);
    position_ = end + 1;
    return inside;
  }

  // Returns the text at this position for an error, short enough for a line and without bytes that are not text.
  std::string here() const {
    const auto rest = text_.substr(position_, 24);
    if (rest.empty()) return "the end of the header";
    std::string shown = "'";
    for (const char c : rest) shown += c >= ' ' && c <= '~' ? c : '?';
    return shown + "'";
  }
  NpyFault fault(std::string expected) {
    skip_spaces();
    return {position_, std::move(expected), here()};
  }

  std::optional<NpyFault> value(std::string_view key, size_t begin) {
    bool* const seen = key == "descr"           ? &has_descr_
                       : key == "fortran_order" ? &has_order_
                       : key == "shape"         ? &has_shape_
                                                : nullptr;
    if (!seen || *seen) {
      position_ = begin;
      return fault("each of the keys 'descr', 'fortran_order' and 'shape' once");
    }
    *seen = true;
    if (seen == &has_descr_) return descr();
    if (seen == &has_shape_) return shape();
    layout_.is_fortran = take_word("True");
    if (!layout_.is_fortran && !take_word("False")) return fault("True or False");
    return std::nullopt;
  }

  std::optional<NpyFault> descr() {
    skip_spaces();
    const size_t begin = position_;
    const auto refuse = [&](std::string_view kind) {
      position_ = begin;
      return fault(
          fmt::format("a type of plain numbers, such as '<f4' ({} are not read, and nothing in them is "
                      "executed)",
                      kind));
    };
    if (position_ < text_.size() && (text_[position_] == '[' || text_[position_] == '(')) {
      return refuse("structured types");
    }
    auto code = quoted();
    if (!code) return fault("a type in quotes");
    if (!code->empty() && std::string_view("<>|=").find(code->front()) != std::string_view::npos) {
      layout_.is_big_endian = code->front() == '>';
      code->remove_prefix(1);
    }
    for (const NpyType& type : kNpyTypes) {
      if (*code != type.code) continue;
      layout_.dtype = type.dtype;
      return std::nullopt;
    }
    if (code->starts_with('O')) return refuse("Python objects");
    if (code->starts_with('U') || code->starts_with('S') || code->starts_with('a')) return refuse("texts");
    if (code->starts_with('V')) return refuse("raw or structured types");
    if (code->starts_with('M') || code->starts_with('m')) return refuse("dates and times");
    return refuse("other types");
  }

  std::optional<NpyFault> shape() {
    if (!take('(')) return fault("a shape in parentheses");
    while (!take(')')) {
      skip_spaces();
      int64_t length = 0;
      const char* const end = text_.data() + text_.size();
      const auto [rest, status] = std::from_chars(text_.data() + position_, end, length);
      if (status != std::errc() || length < 0) return fault("a length of a dimension");
      if (layout_.shape.size() == kMaxNpyDims) return fault("at most 64 dimensions");
      layout_.shape.push_back(length);
      position_ = static_cast<size_t>(rest - text_.data());
      if (position_ < text_.size() && text_[position_] == 'L') ++position_;  // as Python 2 wrote long numbers
      if (take(',')) continue;
      if (take(')')) break;
      return fault("',' or ')'");
    }
    return std::nullopt;
  }

  std::string_view text_;
  size_t position_ = 0;
  ArrayLayout layout_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text) { return NpyHeaderParser(text).parse(); }

std::string format_npy_header(DType dtype, std::span<const int64_t> shape) {
  std::string_view code;
  for (const NpyType& type : kNpyTypes) {
    if (type.dtype == dtype) code = type.code;
  }
  std::string lengths;
  for (const int64_t length : shape) fmt::format_to(std::back_inserter(lengths), "{}, ", length);
  if (!lengths.empty()) lengths.pop_back();  // (2, 3,) and (2,)
  if (shape.size() > 1) lengths.pop_back();  // (2, 3)
  return fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                     element_size(dtype) == 1 ? '|' : '<', code, lengths);
}

}  // namespace cohort::files
