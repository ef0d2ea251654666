#include "cohort/extras/files/arrays/csv_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "cohort/base/text/text.h"

namespace cohort::files {
namespace {

constexpr uint64_t kCsvPieceBytes = uint64_t{256} << 10;
constexpr size_t kMaxCsvRecordBytes = size_t{16} << 20;
constexpr size_t kMaxCsvShown = 40;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string shown_field(std::string_view text) {
  std::string shown = "\"";
  for (const char c : text.substr(0, kMaxCsvShown)) shown += static_cast<unsigned char>(c) >= ' ' ? c : '?';
  return shown + (text.size() > kMaxCsvShown ? "...\"" : "\"");
}

// Removes spaces around a number and a plus sign before it, which std::from_chars does not accept.
std::string_view bare_number(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  text = text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

template <typename Number>
bool parse_whole(std::string_view text, Number* value) {
  text = bare_number(text);
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [rest, status] = std::from_chars(begin, end, *value);
  return status == std::errc() && rest == end;
}

}  // namespace

base::Result<CsvReader> CsvReader::open(const std::string& path, CsvFormat format) {
  auto file = RandomAccessFile::open(path);
  if (!file) return file.error();
  return open(*std::move(file), format);
}

base::Result<CsvReader> CsvReader::open(RandomAccessFile file, CsvFormat format) {
  CsvReader reader(std::move(file), format);
  const auto is_special = [](char c) { return c == '\n' || c == '\r' || c == '\0'; };
  if (format.delimiter == format.quote || is_special(format.delimiter) || is_special(format.quote)) {
    return base::Error(fmt::format("cannot read \"{}\": delimiter and quote must differ, and neither may end a line",
                                   reader.file_.path()));
  }
  if (reader.file_.size() >= kByteOrderMark.size()) {
    auto mark = reader.file_.read(0, kByteOrderMark.size(), "text");
    if (!mark) return mark.error();
    if (*mark == kByteOrderMark) reader.position_ = kByteOrderMark.size();
  }
  auto is_there = reader.read_record();
  if (!is_there) return is_there.error();
  if (!*is_there) return reader.error_at_line(1, "a record", "the end of the file");
  for (size_t i = 0; i < reader.ends_.size(); ++i) {
    reader.names_.push_back(format.has_header ? std::string(reader.field(i)) : fmt::format("{}", i));
  }
  reader.has_first_ = !format.has_header;
  std::set<std::string_view> names;
  for (const auto& name : reader.names_) {
    if (!names.insert(name).second) {
      return reader.error_at_line(reader.line_, "different names of columns", shown_field(name) + " twice");
    }
  }
  return reader;
}

base::Result<size_t> CsvReader::column(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return static_cast<size_t>(found - names_.begin());
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min<size_t>(names_.size(), 20); ++i) shown.push_back(names_[i].substr(0, kMaxCsvShown));
  return base::Error(fmt::format("\"{}\" has no column \"{}\"{}, but {}: {}{}", file_.path(), name,
                                 base::did_you_mean(name, shown), names_.size(), base::quoted_list(shown),
                                 names_.size() > shown.size() ? " ..." : ""));
}

std::string_view CsvReader::field(size_t column) const {
  const size_t begin = column == 0 ? 0 : ends_[column - 1];
  return std::string_view(text_).substr(begin, ends_[column] - begin);
}

base::Result<int64_t> CsvReader::integer(size_t column) const {
  int64_t value = 0;
  if (parse_whole(field(column), &value)) return value;
  return error_at(column, "a whole number of 64 bits");
}

base::Result<double> CsvReader::number(size_t column) const {
  double value = 0;
  if (parse_whole(field(column), &value)) return value;
  return error_at(column, "a number");
}

base::Error CsvReader::error_at(size_t column, std::string_view expected) const {
  return base::Error(fmt::format("\"{}\", line {}, column {}: expected {}, but found {}", file_.path(), line_,
                                 shown_field(names_[column]), expected, shown_field(field(column))));
}

base::Error CsvReader::error_at_line(int64_t line, std::string_view expected, std::string_view found) const {
  return base::Error(fmt::format("\"{}\", line {}: expected {}, but found {}", file_.path(), line, expected, found));
}

base::Result<bool> CsvReader::next() {
  if (std::exchange(has_first_, false)) return true;
  auto is_there = read_record();
  if (is_there && *is_there && ends_.size() != names_.size()) {
    return error_at_line(line_, fmt::format("{} fields, as in the first record", names_.size()),
                         fmt::format("{}", ends_.size()));
  }
  return is_there;
}

// Whether there is a byte at at_. Reads the next piece of the file if the last one is used up.
base::Result<bool> CsvReader::has_byte() {
  if (at_ < piece_.size()) return true;
  const uint64_t count = std::min(kCsvPieceBytes, file_.size() - position_);
  if (count == 0) return false;
  piece_.resize(count);
  at_ = 0;
  if (auto done = file_.read(position_, std::span(piece_), "text"); !done) return done.error();
  position_ += count;
  return true;
}

base::Result<bool> CsvReader::read_record() {
  text_.clear();
  ends_.clear();
  for (;;) {
    auto has_more = has_byte();
    if (!has_more || !*has_more) return has_more;
    if (piece_[at_] != '\n' && piece_[at_] != '\r') break;
    // Skips an empty line. A carriage return without a line feed is an error.
    line_ = next_line_;
    if (auto ended = end_of_field(); !ended) return ended.error();
  }
  line_ = next_line_;
  for (;;) {
    auto has_more = has_byte();
    if (!has_more) return has_more.error();
    const bool is_quoted = *has_more && piece_[at_] == format_.quote;
    if (auto done = is_quoted ? read_quoted() : read_plain(); !done) return done.error();
    ends_.push_back(text_.size());
    if (ends_.size() > kMaxCsvRecordBytes) {
      return error_at_line(line_, fmt::format("at most {} fields", kMaxCsvRecordBytes), "more");
    }
    auto is_last = end_of_field();
    if (!is_last) return is_last.error();
    if (*is_last) return true;
  }
}

// Appends a part of the piece to the field.
base::Result<void> CsvReader::append(size_t begin, size_t end) {
  if (end - begin > kMaxCsvRecordBytes - text_.size()) {
    return error_at_line(line_, fmt::format("a record of at most {}", base::format_bytes(kMaxCsvRecordBytes)),
                         "a longer one (is a quote missing?)");
  }
  text_.append(piece_, begin, end - begin);
  return {};
}

base::Result<void> CsvReader::read_quoted() {
  const int64_t begin = next_line_;
  ++at_;
  for (;;) {
    auto has_more = has_byte();
    if (!has_more) return has_more.error();
    if (!*has_more) return error_at_line(begin, "a quote at the end of a quoted field", "the end of the file");
    const size_t from = at_;
    while (at_ < piece_.size() && piece_[at_] != format_.quote && piece_[at_] != '\n') ++at_;
    if (auto done = append(from, at_); !done) return done;
    if (at_ == piece_.size()) continue;
    if (piece_[at_] == '\n') {
      ++next_line_;
    } else {
      ++at_;
      has_more = has_byte();
      if (!has_more) return has_more.error();
      if (!*has_more || piece_[at_] != format_.quote) return {};
    }
    if (auto done = append(at_, at_ + 1); !done) return done;
    ++at_;
  }
}

base::Result<void> CsvReader::read_plain() {
  for (;;) {
    auto has_more = has_byte();
    if (!has_more) return has_more.error();
    if (!*has_more) return {};
    const char byte = piece_[at_];
    if (byte == format_.delimiter || byte == '\n' || byte == '\r') return {};
    if (byte == format_.quote) {
      return error_at_line(next_line_, "quotes around a whole field, and twice inside one",
                           "a quote inside a field without quotes");
    }
    const size_t begin = at_;
    while (at_ < piece_.size() && piece_[at_] != format_.quote && piece_[at_] != format_.delimiter &&
           piece_[at_] != '\n' && piece_[at_] != '\r') {
      ++at_;
    }
    if (auto done = append(begin, at_); !done) return done;
  }
}

// Reads a delimiter, or the end of the line. Returns true for the latter.
base::Result<bool> CsvReader::end_of_field() {
  auto has_more = has_byte();
  if (!has_more) return has_more.error();
  if (!*has_more) return true;
  const char byte = piece_[at_++];
  if (byte == format_.delimiter) return false;
  if (byte == '\r') {
    has_more = has_byte();
    if (!has_more) return has_more.error();
    if (!*has_more || piece_[at_] != '\n') {
      return error_at_line(next_line_, "a line feed after a carriage return", *has_more ? "another byte" : "the end");
    }
    ++at_;
  } else if (byte != '\n') {
    return error_at_line(next_line_, "a delimiter or the end of the line after a quoted field",
                         shown_field(std::string_view(&byte, 1)));
  }
  ++next_line_;
  return true;
}

}  // namespace cohort::files
