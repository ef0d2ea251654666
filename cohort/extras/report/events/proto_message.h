/// ProtoMessage: a message of Protocol Buffers, written field by field. TensorBoard needs a dozen small messages, so writing the
/// wire format by hand is shorter than a library and its generated code. Fields are written in the order of the calls; readers
/// accept any order, but other languages write them in the order of their numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::report {

class ProtoMessage {
 public:
  /// Writes integers, bools and enumerations; negative ones as 64-bit two's complement.
  ProtoMessage& integer(int field, int64_t value);
  ProtoMessage& number(int field, double value);
  ProtoMessage& single(int field, float value);
  ProtoMessage& text(int field, std::string_view bytes);
  ProtoMessage& message(int field, const ProtoMessage& value) { return text(field, value.bytes_); }
  /// Writes a packed list, and nothing for an empty one.
  ProtoMessage& numbers(int field, const std::vector<double>& values);

  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int wire_type);
  void varint(uint64_t value);
  template <typename T>
  void fixed(T value);
  std::string bytes_;
};

}  // namespace cohort::report
