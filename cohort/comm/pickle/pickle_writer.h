/// PickleWriter: writes one pickle of protocol 4, without frames and memo.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::comm {

class PickleWriter {
 public:
  /// Throws c10::ValueError for values without a plain form.
  void put(const c10::IValue& value, int depth = 0);
  void put_int(int64_t value);
  void put_double(double value);
  void put_string(std::string_view text);
  void put_bytes(std::string_view bytes);
  void put_name(const char* module, const char* name);
  void put_opcode(char opcode) { out_ += opcode; }
  /// Returns: the pickle; the writer is used up.
  std::string finish();

 private:
  void put_unsigned(uint64_t value, int num_bytes);
  void put_sized(std::string_view bytes, char small, char medium, char large);
  void put_ints(at::IntArrayRef values);
  void put_tensor(const at::Tensor& tensor);
  void put_items(at::ArrayRef<c10::IValue> items, int depth);
  void put_container(const c10::IValue& value, int depth);

  std::string out_ = "\x80\x04";
};

}  // namespace cohort::comm
