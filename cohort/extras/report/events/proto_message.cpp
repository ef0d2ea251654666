#include "cohort/extras/report/events/proto_message.h"

#include <bit>
#include <cstring>

namespace cohort::report {
namespace {

constexpr int kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
static_assert(std::endian::native == std::endian::little);

}  // namespace

ProtoMessage& ProtoMessage::integer(int field, int64_t value) {
  key(field, kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

ProtoMessage& ProtoMessage::number(int field, double value) {
  key(field, kFixed64);
  fixed(value);
  return *this;
}

ProtoMessage& ProtoMessage::single(int field, float value) {
  key(field, kFixed32);
  fixed(value);
  return *this;
}

ProtoMessage& ProtoMessage::text(int field, std::string_view bytes) {
  key(field, kLengthDelimited);
  varint(bytes.size());
  bytes_ += bytes;
  return *this;
}

ProtoMessage& ProtoMessage::numbers(int field, const std::vector<double>& values) {
  if (values.empty()) return *this;
  key(field, kLengthDelimited);
  varint(values.size() * sizeof(double));
  for (const double value : values) fixed(value);
  return *this;
}

void ProtoMessage::key(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | wire_type); }

void ProtoMessage::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

template <typename T>
void ProtoMessage::fixed(T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  bytes_.append(bytes, sizeof value);
}

}  // namespace cohort::report
