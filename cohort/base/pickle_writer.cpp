#include "cohort/base/pickle_writer.h"

#include <bit>
#include <limits>
#include <utility>

#include "cohort/base/pickle_text.h"

namespace cohort::base {

PickleWriter::PickleWriter(int protocol)
    : protocol_(protocol), out_{pickle_opcode::kProto, static_cast<char>(protocol)} {}

void PickleWriter::put_unsigned(uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
}

void PickleWriter::put_int(int64_t value) {
  if (value >= 0 && value <= 0xFFFF) {
    put(value <= 0xFF ? pickle_opcode::kBinInt1 : pickle_opcode::kBinInt2);
    put_unsigned(static_cast<uint64_t>(value), value <= 0xFF ? 1 : 2);
  } else if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    put(pickle_opcode::kBinInt);
    put_unsigned(static_cast<uint64_t>(value), 4);
  } else {
    put_long(value);
  }
}

void PickleWriter::put_long(int64_t value) {
  put({pickle_opcode::kLong1, 8});
  put_unsigned(static_cast<uint64_t>(value), 8);
}

// BINFLOAT is the one number that is big-endian.
void PickleWriter::put_double(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  put(pickle_opcode::kBinFloat);
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift);
}

void PickleWriter::put_sized(std::string_view bytes, char small, char medium, char large) {
  const bool is_small = bytes.size() <= 0xFF && protocol_ >= 4;
  const bool is_medium = bytes.size() <= 0xFFFFFFFF || protocol_ < 4;
  put(is_small ? small : is_medium ? medium : large);
  put_unsigned(bytes.size(), is_small ? 1 : is_medium ? 4 : 8);
  out_.append(bytes);
}

void PickleWriter::put_text(std::string_view utf8) {
  put_sized(utf8, pickle_opcode::kShortBinUnicode, pickle_opcode::kBinUnicode, pickle_opcode::kBinUnicode8);
}

void PickleWriter::put_bytes(std::string_view bytes) {
  if (protocol_ >= 3) {
    return put_sized(bytes, pickle_opcode::kShortBinBytes, pickle_opcode::kBinBytes, pickle_opcode::kBinBytes8);
  }
  std::string text;
  for (const char byte : bytes) append_utf8(text, static_cast<unsigned char>(byte));
  put_name("_codecs", "encode");
  put_text(text);
  put_text("latin1");
  put({pickle_opcode::kTuple2, pickle_opcode::kReduce});
}

void PickleWriter::put_name(std::string_view module, std::string_view name) {
  if (protocol_ >= 4) {
    put_text(module);
    put_text(name);
    return put(pickle_opcode::kStackGlobal);
  }
  put(pickle_opcode::kGlobal);
  out_.append(module).append("\n").append(name).append("\n");
}

void PickleWriter::put_numbered(uint32_t number, char small, char large) {
  put(number <= 0xFF ? small : large);
  put_unsigned(number, number <= 0xFF ? 1 : 4);
}

void PickleWriter::put_memo(uint32_t number) {
  put_numbered(number, pickle_opcode::kBinPut, pickle_opcode::kLongBinPut);
}

void PickleWriter::put_again(uint32_t number) {
  put_numbered(number, pickle_opcode::kBinGet, pickle_opcode::kLongBinGet);
}

std::string PickleWriter::finish() {
  put(pickle_opcode::kStop);
  return std::move(out_);
}

}  // namespace cohort::base
