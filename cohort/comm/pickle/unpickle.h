/// Unpickler: pickle's stack machine without the parts that run code.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cohort::comm {

/// A Python name that a pickle refers to, such as {"torch.storage", "_load_from_bytes"}.
struct PythonName {
  std::string module;
  std::string name;
};

/// What names and persistent ids stand for. Each throws c10::ValueError for what it does not know.
struct UnpicklerNames {
  /// Called when a name is met, before anything is done with it.
  std::function<void(const PythonName&)> check;
  /// Calls it with the elements of the tuple that stands after it.
  std::function<c10::IValue(const PythonName&, const std::vector<c10::IValue>& arguments)> call;
  /// The object a persistent id stands for; empty where none may occur.
  std::function<c10::IValue(const c10::IValue& id)> load_persistent;
  /// Gives an object that `call` made its state, and returns what stands in its place then; empty where objects have none.
  /// The memo keeps the object as it was before.
  std::function<c10::IValue(const c10::IValue& object, const c10::IValue& state)> build;
  /// Python 2's strings are read: as str where they are UTF-8, as bytes where they are not. The bytes are the same either way.
  bool python2_strings = false;
};

class Unpickler {
 public:
  Unpickler(std::string_view data, UnpicklerNames names) : data_(data), names_(std::move(names)) {}
  /// One pickle. Throws c10::ValueError.
  c10::IValue load();
  /// Where the next pickle would begin.
  size_t position() const { return position_; }
  /// The name behind a value that `check` let pass; null for other values.
  static const PythonName* name_of(const c10::IValue& value);

 private:
  struct Container {
    int depth = 0;
    bool shared = false;  // fetched from the memo: must not change any more
    bool opaque = false;  // a tuple with a function or storage in it: arguments of a call, no value
  };

  bool step(char opcode);
  bool run_number(char opcode);
  bool run_text(char opcode);
  bool run_python2_string(char opcode);
  bool run_container(char opcode);
  bool run_dict(char opcode);
  bool run_memo(char opcode);
  bool run_call(char opcode);
  bool run_build();

  [[noreturn]] void fail(const std::string& what) const;
  std::string_view take(uint64_t size);
  std::string_view take_line();
  uint64_t take_unsigned(int num_bytes);
  int64_t take_long(uint64_t size);
  int64_t parse_line_int();
  double parse_line_double();

  void push(c10::IValue value) { stack_.push_back(std::move(value)); }
  void push_text(std::string_view utf8);
  void push_name(PythonName name);
  void push_tuple(std::vector<c10::IValue> items);
  c10::IValue pop();
  c10::IValue& top();
  std::vector<c10::IValue> pop_to_mark();
  std::vector<c10::IValue> pop_many(size_t count);
  void extend(const c10::IValue& list, std::vector<c10::IValue> items);
  void insert(const c10::IValue& dict, const std::vector<c10::IValue>& keys_and_values);
  Container& open_container(const c10::IValue& value);
  bool is_opaque(const c10::IValue& value);
  void nest(Container& container, const c10::IValue& item);
  void remember(uint64_t index);
  void recall(uint64_t index);

  std::string_view data_;
  UnpicklerNames names_;
  size_t position_ = 0;
  size_t opcode_position_ = 0;
  std::vector<c10::IValue> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, c10::IValue> memo_;
  std::unordered_map<const void*, Container> containers_;  // by identity; entries are renewed when memory is used again
};

}  // namespace cohort::comm
