// The operations of PickleMachine that read bytes, numbers and texts.

#include <bit>
#include <cstdlib>

#include "cohort/base/pickle/pickle_machine.h"
#include "cohort/base/pickle/pickle_opcodes.h"
#include "cohort/base/pickle/pickle_text.h"
#include "cohort/base/text/text.h"

namespace cohort::base {

using namespace pickle_opcode;

void PickleMachine::fail(const std::string& what) const {
  throw Fault{Error("cannot unpickle: " + what + " (byte " + std::to_string(opcode_position_) + " of " +
                    std::to_string(data_.size()) + ")")};
}

std::string_view PickleMachine::take(uint64_t size) {
  const auto left = data_.size() - position_;
  if (size > left) fail("it needs " + std::to_string(size) + " more bytes and has " + std::to_string(left));
  const auto part = data_.substr(position_, size);
  position_ += size;
  return part;
}

std::string_view PickleMachine::take_line() {
  const auto end = data_.find('\n', position_);
  if (end == std::string_view::npos) fail("a line has no end");
  const auto line = data_.substr(position_, end - position_);
  position_ = end + 1;
  return line;
}

uint64_t PickleMachine::take_unsigned(int num_bytes) {
  const auto part = take(num_bytes);
  uint64_t value = 0;
  for (int i = num_bytes - 1; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(part[i]);
  return value;
}

// Reads two's complement, little endian, of any length.
int64_t PickleMachine::take_long(uint64_t size) {
  auto part = take(size);
  const bool negative = !part.empty() && (part.back() & 0x80);
  const char filler = negative ? '\xff' : '\0';
  while (part.size() > 8 && part.back() == filler) part.remove_suffix(1);
  const bool fits = part.size() <= 8 && (part.size() < 8 || negative == bool(part.back() & 0x80));
  if (!fits) fail("an int needs more than 64 bits");
  uint64_t value = negative ? ~uint64_t{0} : 0;
  for (size_t i = part.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(part[i]);
  return static_cast<int64_t>(value);
}

int64_t PickleMachine::parse_line_int() {
  auto line = take_line();
  if (!line.empty() && line.back() == 'L') line.remove_suffix(1);
  const auto number = base::parse_int(line);
  if (!number) fail("\"" + std::string(line.substr(0, 40)) + "\" is not an int of 64 bits");
  return *number;
}

double PickleMachine::parse_line_double() {
  const std::string line(take_line());
  char* end = nullptr;
  const double value = std::strtod(line.c_str(), &end);
  const bool whole = !line.empty() && end == line.c_str() + line.size();
  if (!whole) fail("\"" + line.substr(0, 40) + "\" is not a float");
  return value;
}

void PickleMachine::push_string(PickleKind kind, std::string_view text) {
  if (options_.borrow) {
    push_node(std::make_shared<PickleTextNode>(kind, text));
  } else {
    push_node(std::make_shared<PickleTextNode>(kind, std::string(text)));
  }
}

void PickleMachine::push_utf8(std::string_view utf8) {
  if (!is_utf8(utf8)) fail("a str is not valid UTF-8");
  push_string(PickleKind::kText, utf8);
}

bool PickleMachine::run_number(char opcode) {
  switch (opcode) {
    case kNone:
      push({});
      return true;
    case kNewTrue:
    case kNewFalse:
      push(PickleValue::of_bool(opcode == kNewTrue));
      return true;
    case kInt:
      if (data_.substr(position_, 3) == "00\n" || data_.substr(position_, 3) == "01\n") {
        push(PickleValue::of_bool(take_line() == "01"));
      } else {
        push(PickleValue::of_int(parse_line_int()));
      }
      return true;
    case kLong:
      push(PickleValue::of_int(parse_line_int()));
      return true;
    case kBinInt:
      push(PickleValue::of_int(static_cast<int32_t>(take_unsigned(4))));
      return true;
    case kBinInt1:
    case kBinInt2:
      push(PickleValue::of_int(static_cast<int64_t>(take_unsigned(opcode == kBinInt1 ? 1 : 2))));
      return true;
    case kLong1:
    case kLong4:
      push(PickleValue::of_int(take_long(take_unsigned(opcode == kLong1 ? 1 : 4))));
      return true;
    case kFloat:
      push(PickleValue::of_float(parse_line_double()));
      return true;
    case kBinFloat: {
      uint64_t bits = 0;
      for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
      push(PickleValue::of_float(std::bit_cast<double>(bits)));
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::run_text(char opcode) {
  switch (opcode) {
    case kUnicode: {
      const auto text = from_raw_unicode_escape(take_line());
      if (!text) fail("a str has a malformed escape");
      push(PickleValue::of_text(*text));
      return true;
    }
    case kShortBinUnicode:
      push_utf8(take(take_unsigned(1)));
      return true;
    case kBinUnicode:
      push_utf8(take(take_unsigned(4)));
      return true;
    case kBinUnicode8:
      push_utf8(take(take_unsigned(8)));
      return true;
    case kShortBinBytes:
      push_string(PickleKind::kBytes, take(take_unsigned(1)));
      return true;
    case kBinBytes:
      push_string(PickleKind::kBytes, take(take_unsigned(4)));
      return true;
    case kBinBytes8:
    case kByteArray8:
      push_string(PickleKind::kBytes, take(take_unsigned(8)));
      return true;
    default:
      return options_.python2_strings && run_python2_string(opcode);
  }
}

bool PickleMachine::run_python2_string(char opcode) {
  std::string_view text;
  if (opcode == kString) {
    text = take_line();
    const bool is_quoted =
        text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.front() == text.back();
    // Python writes characters that are not printable as escapes. Only names are plain.
    if (!is_quoted || text.find('\\') != std::string_view::npos)
      fail("a string of protocol 0 is not plain text in quotes");
    text = text.substr(1, text.size() - 2);
  } else if (opcode == kShortBinString || opcode == kBinString) {
    text = take(take_unsigned(opcode == kShortBinString ? 1 : 4));
  } else {
    return false;
  }
  push_string(is_utf8(text) ? PickleKind::kText : PickleKind::kBytes, text);
  return true;
}

}  // namespace cohort::base
