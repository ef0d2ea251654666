/// PickleWriter: Python's pickle format, value by value, without frames. Knows no types but Python's own.
/// write_pickle: whole values (pickle_value.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "cohort/base/pickle_opcodes.h"
#include "cohort/base/pickle_value.h"
#include "cohort/base/result.h"

namespace cohort::base {

class PickleWriter {
 public:
  /// Protocol 4 is what Python writes since 3.8, protocol 2 what every Python 3 and 2.3 reads; only 4 has texts and bytes in
  /// short forms, and names on the stack.
  explicit PickleWriter(int protocol = 4);

  void put_none() { put(pickle_opcode::kNone); }
  void put_bool(bool value) { put(value ? pickle_opcode::kNewTrue : pickle_opcode::kNewFalse); }
  /// In the shortest form.
  void put_int(int64_t value);
  /// Always as LONG1 of 8 bytes.
  void put_long(int64_t value);
  void put_double(double value);
  /// Requires: UTF-8, of at most 4 GiB in protocol 2.
  void put_text(std::string_view utf8);
  /// In protocol 2 as Python does: a call that encodes a text; of at most 2 GiB there.
  void put_bytes(std::string_view bytes);
  void put_name(std::string_view module, std::string_view name);
  /// Keeps the value just put under the next number, or puts that of a number again.
  void put_memo(uint32_t number);
  void put_again(uint32_t number);
  /// What makes lists, tuples, dicts and calls out of the values before and after.
  void put(char opcode) { out_ += opcode; }
  void put(std::initializer_list<char> opcodes) { out_ += opcodes; }

  /// Returns: the pickle; the writer is used up.
  std::string finish();

 private:
  void put_unsigned(uint64_t value, int num_bytes);
  void put_numbered(uint32_t number, char small, char large);
  void put_sized(std::string_view bytes, char small, char medium, char large);

  int protocol_;
  std::string out_;
};

/// `value` in protocol 2 or 4. Lists, dicts, objects and persistent ids that occur more than once (by identity) stay one object
/// in Python. An error for values nested deeper than kMaxPickleDepth.
Result<std::string> write_pickle(const PickleValue& value, int protocol);

}  // namespace cohort::base
