#include "cohort/comm/pickle/unpickle.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "cohort/base/pickle_opcodes.h"
#include "cohort/comm/pickle/pickle.h"

namespace cohort::comm {
namespace {

using c10::IValue;
using namespace base::pickle_opcode;  // forty constants, used in switches only

struct NameHolder : torch::CustomClassHolder {
  explicit NameHolder(PythonName n) : name(std::move(n)) {}
  PythonName name;
};

// The type a list of such items has; Any for what has no single one.
c10::TypePtr item_type(const IValue& value) {
  if (value.isTensor()) return c10::TensorType::get();
  if (value.isInt() || value.isDouble() || value.isBool() || value.isString() || value.isComplexDouble()) {
    return value.type();
  }
  if (value.isList()) return c10::ListType::create(value.toList().elementType());
  return c10::AnyType::get();
}

c10::TypePtr common_type(bool first, const c10::TypePtr& so_far, const IValue& value) {
  auto type = item_type(value);
  return first || *type == *so_far ? type : c10::TypePtr(c10::AnyType::get());
}

bool is_container(const IValue& value) { return value.isList() || value.isGenericDict() || value.isTuple(); }

bool is_nan(const IValue& value) {
  if (value.isDouble()) return std::isnan(value.toDouble());
  return value.isComplexDouble() &&
         (std::isnan(value.toComplexDouble().real()) || std::isnan(value.toComplexDouble().imag()));
}

std::string opcode_text(char opcode) {
  const auto number = static_cast<unsigned char>(opcode);
  const char* const digits = "0123456789abcdef";
  return std::string("0x") + digits[number >> 4] + digits[number & 15];
}

const char* refused_kind(char opcode) {
  switch (opcode) {
    case '\x8f':
    case '\x90':
    case '\x91':
      return "a set; send a list";
    case '\x81':
    case '\x92':
    case 'i':
    case 'o':
    case 'b':
      return "an object of a class";
    case 'P':
    case 'Q':
      return "a persistent id";
    case 'S':
    case 'T':
    case 'U':
      return "a string of Python 2";
    case '\x82':
    case '\x83':
    case '\x84':
      return "a name from copyreg's extension registry";
    case '\x97':
    case '\x98':
      return "an out-of-band buffer";
    default:
      return "not an operation of pickle";
  }
}

}  // namespace

void Unpickler::push_name(PythonName name) {
  names_.check(name);
  push(IValue::make_capsule(c10::make_intrusive<NameHolder>(std::move(name))));
}

const PythonName* Unpickler::name_of(const IValue& value) {
  if (!value.isCapsule()) return nullptr;
  const auto holder = value.toCapsule();
  const auto* named = dynamic_cast<const NameHolder*>(holder.get());
  return named ? &named->name : nullptr;
}

IValue& Unpickler::top() {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) fail("an operation finds no value");
  return stack_.back();
}

IValue Unpickler::pop() {
  auto value = std::move(top());
  stack_.pop_back();
  return value;
}

std::vector<IValue> Unpickler::pop_many(size_t count) {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() - floor < count) fail("an operation finds too few values");
  std::vector<IValue> items(std::make_move_iterator(stack_.end() - static_cast<std::ptrdiff_t>(count)),
                            std::make_move_iterator(stack_.end()));
  stack_.resize(stack_.size() - count);
  return items;
}

std::vector<IValue> Unpickler::pop_to_mark() {
  if (marks_.empty()) fail("an operation finds no mark");
  auto items = pop_many(stack_.size() - marks_.back());
  marks_.pop_back();
  return items;
}

Unpickler::Container& Unpickler::open_container(const IValue& value) {
  auto& container = containers_[value.internalToPointer()];
  // Python fills a container before it refers to it again, unless it contains itself.
  if (container.shared) fail("a list or dict contains itself");
  return container;
}

bool Unpickler::is_opaque(const IValue& value) {
  if (value.isTuple()) return containers_[value.internalToPointer()].opaque;
  return value.isCapsule() && !is_bytes(value);
}

void Unpickler::nest(Container& container, const IValue& item) {
  container.opaque = container.opaque || is_opaque(item);
  if (!is_container(item)) return;
  container.depth = std::max(container.depth, containers_[item.internalToPointer()].depth + 1);
  if (container.depth >= kMaxPickleDepth) fail(c10::str("nested deeper than ", kMaxPickleDepth));
}

void Unpickler::push_tuple(std::vector<IValue> items) {
  Container container;
  for (const auto& item : items) nest(container, item);
  push(c10::ivalue::Tuple::create(std::move(items)));
  containers_[top().internalToPointer()] = container;
}

void Unpickler::extend(const IValue& target, std::vector<IValue> items) {
  if (!target.isList()) fail("items are appended to something that is not a list");
  auto& container = open_container(target);
  auto list = target.toList();
  for (auto& item : items) {
    nest(container, item);
    if (container.opaque) fail("a Python function or storage stands as a value");
    list.unsafeSetElementType(common_type(list.empty(), list.elementType(), item));
    list.push_back(std::move(item));
  }
}

void Unpickler::insert(const IValue& target, const std::vector<IValue>& items) {
  if (!target.isGenericDict()) fail("keys are set in something that is not a dict");
  if (items.size() % 2 != 0) fail("a dict has a key without a value");
  auto& container = open_container(target);
  auto dict = target.toGenericDict();
  for (size_t i = 0; i < items.size(); i += 2) {
    const auto& key = items[i];
    const bool plain = key.isInt() || key.isString() || key.isDouble() || key.isBool() || key.isComplexDouble();
    if (!plain)
      fail(c10::str("a dict has a key of type ", key.tagKind(), "; str, int, float, complex and bool are possible"));
    // Each would take a place of its own, and as all have one hash, the table doubles for each of them.
    if (is_nan(key)) fail("a dict has NaN as a key");
    nest(container, items[i + 1]);
    if (container.opaque) fail("a Python function or storage stands as a value");
    dict.unsafeSetKeyType(common_type(dict.empty(), dict.keyType(), key));
    dict.unsafeSetValueType(common_type(dict.empty(), dict.valueType(), items[i + 1]));
    dict.insert_or_assign(key, items[i + 1]);
  }
}

bool Unpickler::run_container(char opcode) {
  switch (opcode) {
    case kEmptyList:
    case kList: {
      auto items = opcode == kList ? pop_to_mark() : std::vector<IValue>();
      IValue list(c10::impl::GenericList(c10::AnyType::get()));
      containers_[list.internalToPointer()] = {};
      extend(list, std::move(items));
      push(std::move(list));
      return true;
    }
    case kAppend: {
      auto item = pop_many(1);
      extend(top(), std::move(item));
      return true;
    }
    case kAppends: {
      auto items = pop_to_mark();
      extend(top(), std::move(items));
      return true;
    }
    case kEmptyTuple:
      push_tuple({});
      return true;
    case kTuple:
      push_tuple(pop_to_mark());
      return true;
    case kTuple1:
    case kTuple2:
    case kTuple3:
      push_tuple(pop_many(static_cast<size_t>(opcode - kTuple1) + 1));
      return true;
    default:
      return run_dict(opcode);
  }
}

bool Unpickler::run_dict(char opcode) {
  switch (opcode) {
    case kEmptyDict:
    case kDict: {
      const auto items = opcode == kDict ? pop_to_mark() : std::vector<IValue>();
      IValue dict(c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()));
      containers_[dict.internalToPointer()] = {};
      insert(dict, items);
      push(std::move(dict));
      return true;
    }
    case kSetItem: {
      const auto item = pop_many(2);
      insert(top(), item);
      return true;
    }
    case kSetItems: {
      const auto items = pop_to_mark();
      insert(top(), items);
      return true;
    }
    default:
      return false;
  }
}

void Unpickler::remember(uint64_t index) { memo_[index] = top(); }

void Unpickler::recall(uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) fail(c10::str("it refers to value ", index, ", which it did not store"));
  if (is_container(found->second)) containers_[found->second.internalToPointer()].shared = true;
  push(found->second);
}

bool Unpickler::run_memo(char opcode) {
  switch (opcode) {
    case kPut:
      remember(parse_line_int());
      return true;
    case kBinPut:
      remember(take_unsigned(1));
      return true;
    case kLongBinPut:
      remember(take_unsigned(4));
      return true;
    case kMemoize:
      remember(memo_.size());
      return true;
    case kGet:
      recall(parse_line_int());
      return true;
    case kBinGet:
      recall(take_unsigned(1));
      return true;
    case kLongBinGet:
      recall(take_unsigned(4));
      return true;
    case kDup: {
      auto value = top();
      if (is_container(value)) containers_[value.internalToPointer()].shared = true;
      push(std::move(value));
      return true;
    }
    case kPop:
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return true;
    case kPopMark:
      pop_to_mark();
      return true;
    default:
      return false;
  }
}

bool Unpickler::run_call(char opcode) {
  switch (opcode) {
    case kGlobal: {
      std::string module(take_line());
      push_name({std::move(module), std::string(take_line())});
      return true;
    }
    case kStackGlobal: {
      const auto parts = pop_many(2);
      if (!parts[0].isString() || !parts[1].isString()) fail("a name is not made of two strings");
      push_name({parts[0].toStringRef(), parts[1].toStringRef()});
      return true;
    }
    case kReduce: {
      const auto parts = pop_many(2);
      const auto* name = name_of(parts[0]);
      if (!name || !parts[1].isTuple()) fail("something that is not a function is called");
      push(names_.call(*name, parts[1].toTupleRef().elements().vec()));
      if (is_container(top())) containers_[top().internalToPointer()] = {};
      return true;
    }
    case kBuild:
      return run_build();
    case kBinPersId:
      if (!names_.load_persistent) return false;
      push(names_.load_persistent(pop()));
      return true;
    default:
      return false;
  }
}

bool Unpickler::run_build() {
  const auto state = pop();
  // The attributes of an OrderedDict, such as a state dict's _metadata.
  if (state.isGenericDict() && top().isGenericDict()) return true;
  if (!names_.build || !is_opaque(top())) return false;
  push(names_.build(pop(), state));
  return true;
}

bool Unpickler::step(char opcode) {
  switch (opcode) {
    case kProto: {
      const auto protocol = take_unsigned(1);
      if (protocol > 5) fail(c10::str("it is of protocol ", protocol, "; 0 to 5 are known"));
      return true;
    }
    case kFrame:
      if (const auto size = take_unsigned(8); size > data_.size() - position_) {
        fail(c10::str("a frame of ", size, " bytes has ", data_.size() - position_));
      }
      return true;
    case kMark:
      marks_.push_back(stack_.size());
      return true;
    default:
      return run_number(opcode) || run_text(opcode) || run_container(opcode) || run_memo(opcode) || run_call(opcode);
  }
}

IValue Unpickler::load() {
  for (;;) {
    opcode_position_ = position_;
    const char opcode = take(1)[0];
    if (opcode == kStop) break;
    if (!step(opcode)) fail(c10::str("operation ", opcode_text(opcode), " is ", refused_kind(opcode)));
  }
  if (stack_.size() != 1 || !marks_.empty()) fail("it ends with other than one value");
  if (!names_.load_persistent && is_opaque(stack_[0])) fail("a Python function or storage stands as a value");
  return pop();
}

}  // namespace cohort::comm
