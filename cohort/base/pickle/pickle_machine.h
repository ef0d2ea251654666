/// PickleMachine: pickle's stack machine, without the operations that run code. For pickle_reader.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cohort/base/pickle/pickle_node.h"
#include "cohort/base/pickle/pickle_reader.h"

namespace cohort::base {

class PickleMachine {
 public:
  /// The exception that the machine throws.
  struct Fault {
    Error error;
  };

  PickleMachine(std::string_view data, const PickleReaderOptions& options) : data_(data), options_(options) {}
  /// Throws Fault.
  PickleRead run();

 private:
  bool step(char opcode);
  bool run_number(char opcode);
  bool run_text(char opcode);
  bool run_python2_string(char opcode);
  bool run_container(char opcode);
  bool run_dict(char opcode);
  bool run_memo(char opcode);
  bool run_call(char opcode);
  bool run_new(char opcode);
  bool run_build();

  [[noreturn]] void fail(const std::string& what) const;
  std::string_view take(uint64_t size);
  std::string_view take_line();
  uint64_t take_unsigned(int num_bytes);
  int64_t take_long(uint64_t size);
  int64_t parse_line_int();
  double parse_line_double();

  void push(PickleValue value) { stack_.push_back(std::move(value)); }
  void push_node(std::shared_ptr<PickleNode> node) { push(PickleValue(std::move(node))); }
  void push_utf8(std::string_view utf8);
  void push_string(PickleKind kind, std::string_view text);
  void push_name(PythonName name);
  void push_tuple(std::vector<PickleValue> items);
  void push_object(const PickleValue& callable, const PickleValue& arguments, bool by_new);
  /// Pushes the value of a call that makes a plain value. Returns false if `name` makes no plain value.
  bool push_plain_call(const PythonName& name, const std::vector<PickleValue>& arguments);
  PickleValue pop();
  PickleValue& top();
  std::vector<PickleValue> pop_to_mark();
  std::vector<PickleValue> pop_many(size_t count);

  void extend(PickleNode* list, std::vector<PickleValue> items);
  void insert(PickleNode* dict, const std::vector<PickleValue>& keys_and_values);
  std::string key_text(const PickleValue& key) const;
  void check_open(const PickleNode& node) const;
  void nest(PickleNode& container, const PickleValue& item);
  void nest_value(PickleNode& container, const PickleValue& item);
  void share(const PickleValue& value);
  void remember(uint64_t index) { memo_[index] = top(); }
  void recall(uint64_t index);

  std::string_view data_;
  const PickleReaderOptions& options_;
  size_t position_ = 0;
  size_t opcode_position_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue> memo_;
  /// Texts, with the bytes that they encode.
  std::unordered_map<const PickleNode*, std::pair<PickleValue, PickleValue>> encoded_;
  /// The position of each key in its dict.
  std::unordered_map<const PickleNode*, std::unordered_map<std::string, size_t>> keys_;
};

}  // namespace cohort::base
