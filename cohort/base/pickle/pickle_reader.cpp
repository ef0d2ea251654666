#include "cohort/base/pickle/pickle_reader.h"

#include <cmath>
#include <iterator>

#include "cohort/base/pickle/pickle_machine.h"
#include "cohort/base/pickle/pickle_opcodes.h"
#include "cohort/base/pickle/pickle_text.h"

namespace cohort::base {

using namespace pickle_opcode;  // forty constants, used in switches only

namespace {

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
    case kNewObj:
    case kNewObjEx:
    case 'i':
    case 'o':
    case kBuild:
      return "an object of a class";
    case 'P':
    case kBinPersId:
      return "a persistent id";
    case kString:
    case kBinString:
    case kShortBinString:
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

bool is_nan(const PickleValue& value) {
  if (value.is(PickleKind::kFloat)) return std::isnan(value.to_float());
  return value.is(PickleKind::kComplex) &&
         (std::isnan(value.to_complex().real()) || std::isnan(value.to_complex().imag()));
}

template <typename T>
std::string raw_text(char kind, const T& value) {
  return kind + std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Python writes __builtin__ for builtins in protocols 0 to 2.
bool is_builtin(const PythonName& name) { return name.module == "builtins" || name.module == "__builtin__"; }

}  // namespace

void PickleMachine::push_name(PythonName name) {
  const std::string whole = name.text();
  if (!is_utf8(whole) || whole.find('\n') != std::string::npos) fail("a name is not plain text");
  const std::string refusal = options_.refuse_name(name);
  if (!refusal.empty()) throw Fault{Error(refusal)};
  auto node = std::make_shared<PickleNameNode>(std::move(name));
  node->is_opaque = true;
  push_node(std::move(node));
}

PickleValue& PickleMachine::top() {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) fail("an operation finds no value");
  return stack_.back();
}

PickleValue PickleMachine::pop() {
  PickleValue value = std::move(top());
  stack_.pop_back();
  return value;
}

std::vector<PickleValue> PickleMachine::pop_many(size_t count) {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() - floor < count) fail("an operation finds too few values");
  std::vector<PickleValue> items(std::make_move_iterator(stack_.end() - static_cast<std::ptrdiff_t>(count)),
                                 std::make_move_iterator(stack_.end()));
  stack_.resize(stack_.size() - count);
  return items;
}

std::vector<PickleValue> PickleMachine::pop_to_mark() {
  if (marks_.empty()) fail("an operation finds no mark");
  auto items = pop_many(stack_.size() - marks_.back());
  marks_.pop_back();
  return items;
}

// Python fills a container before it refers to it again, unless the container contains itself.
void PickleMachine::check_open(const PickleNode& node) const {
  if (node.is_shared) fail("a list or dict contains itself");
}

void PickleMachine::share(const PickleValue& value) {
  if (PickleNode* node = value.node()) node->is_shared = true;
}

void PickleMachine::nest(PickleNode& container, const PickleValue& item) {
  const PickleNode* node = item.node();
  if (!node || node->kind == PickleKind::kText || node->kind == PickleKind::kBytes) return;
  container.is_opaque = container.is_opaque || (node->is_opaque && container.kind == PickleKind::kTuple);
  container.depth = std::max(container.depth, node->depth + 1);
  if (container.depth >= kMaxPickleDepth) fail("nested deeper than " + std::to_string(kMaxPickleDepth));
}

void PickleMachine::nest_value(PickleNode& container, const PickleValue& item) {
  const PickleNode* node = item.node();
  if (node && node->is_opaque && !options_.names_as_values) fail("a Python function or storage stands as a value");
  nest(container, item);
}

void PickleMachine::push_tuple(std::vector<PickleValue> items) {
  auto tuple = std::make_shared<PickleItemsNode>(PickleKind::kTuple, std::move(items));
  for (const PickleValue& item : tuple->items) nest(*tuple, item);
  push_node(std::move(tuple));
}

void PickleMachine::extend(PickleNode* target, std::vector<PickleValue> items) {
  auto* list = dynamic_cast<PickleItemsNode*>(target);
  auto* object = dynamic_cast<PickleObjectNode*>(target);
  const bool is_list = (list && list->kind == PickleKind::kList) || object;
  if (!is_list) fail("items are appended to something that is not a list");
  check_open(*target);
  auto& to = list ? list->items : object->items;
  for (PickleValue& item : items) {
    nest_value(*target, item);
    to.push_back(std::move(item));
  }
}

// Returns a text that is the same for equal keys. Keys that are compared by identity have their identity as the text.
std::string PickleMachine::key_text(const PickleValue& key) const {
  switch (key.kind()) {
    case PickleKind::kBool:
      return raw_text('b', key.to_bool());
    case PickleKind::kInt:
      return raw_text('i', key.to_int());
    case PickleKind::kFloat:
      return raw_text('f', key.to_float() == 0 ? 0.0 : key.to_float());
    case PickleKind::kComplex:
      return raw_text('c', key.to_complex() + 0.0);
    case PickleKind::kText:
      return 's' + std::string(key.text());
    default:
      break;
  }
  const bool is_hashable = !key.is(PickleKind::kList) && !key.is(PickleKind::kDict);
  if (is_hashable && options_.any_keys) return raw_text('p', key.identity());
  fail("a dict has a key of type " + std::string(kind_text(key.kind())) +
       "; str, int, float, complex and bool are possible");
}

void PickleMachine::insert(PickleNode* target, const std::vector<PickleValue>& items) {
  auto* dict = dynamic_cast<PickleDictNode*>(target);
  auto* object = dynamic_cast<PickleObjectNode*>(target);
  if (!dict && !object) fail("keys are set in something that is not a dict");
  if (items.size() % 2 != 0) fail("a dict has a key without a value");
  check_open(*target);
  auto& entries = dict ? dict->entries : object->entries;
  auto& places = keys_[target];
  for (size_t i = 0; i < items.size(); i += 2) {
    const PickleValue& key = items[i];
    const auto [place, is_new] = places.try_emplace(key_text(key), entries.size());
    // NaN equals no key, so each NaN would be another entry, all with the same hash.
    if (is_nan(key)) fail("a dict has NaN as a key");
    nest_value(*target, key);
    nest_value(*target, items[i + 1]);
    if (is_new) {
      entries.push_back({key, items[i + 1]});
    } else {
      entries[place->second].value = items[i + 1];
    }
  }
}

bool PickleMachine::run_container(char opcode) {
  switch (opcode) {
    case kEmptyList:
    case kList: {
      auto items = opcode == kList ? pop_to_mark() : std::vector<PickleValue>();
      push(PickleValue::list({}));
      extend(top().node(), std::move(items));
      return true;
    }
    case kAppend: {
      auto item = pop_many(1);
      extend(top().node(), std::move(item));
      return true;
    }
    case kAppends: {
      auto items = pop_to_mark();
      extend(top().node(), std::move(items));
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

bool PickleMachine::run_dict(char opcode) {
  switch (opcode) {
    case kEmptyDict:
    case kDict: {
      const auto items = opcode == kDict ? pop_to_mark() : std::vector<PickleValue>();
      push(PickleValue::dict({}));
      insert(top().node(), items);
      return true;
    }
    case kSetItem: {
      const auto item = pop_many(2);
      insert(top().node(), item);
      return true;
    }
    case kSetItems: {
      const auto items = pop_to_mark();
      insert(top().node(), items);
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::recall(uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) fail("it refers to value " + std::to_string(index) + ", which it did not store");
  share(found->second);
  push(found->second);
}

bool PickleMachine::run_memo(char opcode) {
  switch (opcode) {
    case kPut:
      remember(static_cast<uint64_t>(parse_line_int()));
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
      recall(static_cast<uint64_t>(parse_line_int()));
      return true;
    case kBinGet:
      recall(take_unsigned(1));
      return true;
    case kLongBinGet:
      recall(take_unsigned(4));
      return true;
    case kDup:
      share(top());
      push(PickleValue(top()));
      return true;
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

bool PickleMachine::push_plain_call(const PythonName& name, const std::vector<PickleValue>& arguments) {
  const bool is_bytes = is_builtin(name) && (name.name == "bytes" || name.name == "bytearray");
  const bool is_complex = is_builtin(name) && name.name == "complex";
  if (!is_bytes && !is_complex && !name.is("_codecs", "encode")) return false;
  const Error refusal("cannot unpickle: " + name.text() + " is called with other arguments than Python writes");
  if (is_complex) {
    const bool fits =
        arguments.size() == 2 && arguments[0].is(PickleKind::kFloat) && arguments[1].is(PickleKind::kFloat);
    if (!fits) throw Fault{refusal};
    push(PickleValue::of_complex({arguments[0].to_float(), arguments[1].to_float()}));
  } else if (arguments.size() == 2 && arguments[0].is(PickleKind::kText)) {
    // Bytes written before protocol 3 are the code points of a text. A text that is converted many times gives one value, so that
    // a short pickle does not become large.
    auto& made = encoded_[arguments[0].node()];
    if (made.first.is_none()) {
      auto bytes = to_latin1(arguments[0].text());
      if (!bytes) throw Fault{refusal};
      made = {arguments[0], PickleValue::of_bytes(std::move(*bytes))};
    }
    push(made.second);
  } else if (is_bytes && arguments.empty()) {
    push(PickleValue::of_bytes({}));
  } else if (is_bytes && arguments.size() == 1 && arguments[0].is(PickleKind::kBytes)) {
    push(arguments[0]);
  } else {
    throw Fault{refusal};
  }
  return true;
}

void PickleMachine::push_object(const PickleValue& callable, const PickleValue& arguments, bool by_new) {
  const bool is_call = callable.is(PickleKind::kName) && arguments.is(PickleKind::kTuple);
  if (!is_call) fail("something that is not a function is called");
  if (!by_new && push_plain_call(callable.name(), arguments.items())) return;
  auto object = std::make_shared<PickleObjectNode>(callable, arguments, by_new);
  object->depth = arguments.node()->depth + 1;
  if (object->depth >= kMaxPickleDepth) fail("nested deeper than " + std::to_string(kMaxPickleDepth));
  push_node(std::move(object));
}

bool PickleMachine::run_new(char opcode) {
  if (!options_.new_objects) return false;
  if (opcode == kNewObjEx) {
    const PickleValue keywords = pop();
    if (!keywords.is(PickleKind::kDict) || !keywords.entries().empty()) {
      fail("an object is made with keyword arguments");
    }
  }
  const auto parts = pop_many(2);
  push_object(parts[0], parts[1], /*by_new=*/true);
  return true;
}

bool PickleMachine::run_build() {
  if (stack_.size() - (marks_.empty() ? 0 : marks_.back()) < 2) return false;
  auto* object = dynamic_cast<PickleObjectNode*>(stack_[stack_.size() - 2].node());
  if (!object) return false;
  check_open(*object);
  nest(*object, top());
  object->state = pop();
  return true;
}

bool PickleMachine::run_call(char opcode) {
  switch (opcode) {
    case kGlobal: {
      std::string module(take_line());
      push_name({std::move(module), std::string(take_line())});
      return true;
    }
    case kStackGlobal: {
      const auto parts = pop_many(2);
      const bool is_name = parts[0].is(PickleKind::kText) && parts[1].is(PickleKind::kText);
      if (!is_name) fail("a name is not made of two strings");
      push_name({std::string(parts[0].text()), std::string(parts[1].text())});
      return true;
    }
    case kReduce: {
      const auto parts = pop_many(2);
      push_object(parts[0], parts[1], /*by_new=*/false);
      return true;
    }
    case kNewObj:
    case kNewObjEx:
      return run_new(opcode);
    case kBuild:
      return run_build();
    case kBinPersId: {
      if (!options_.persistent_ids) return false;
      auto node = std::make_shared<PicklePersistentNode>(pop());
      nest(*node, node->id);
      node->is_opaque = true;
      push_node(std::move(node));
      return true;
    }
    default:
      return false;
  }
}

bool PickleMachine::step(char opcode) {
  switch (opcode) {
    case kProto: {
      const auto protocol = take_unsigned(1);
      if (protocol > 5) fail("it is of protocol " + std::to_string(protocol) + "; 0 to 5 are known");
      return true;
    }
    case kFrame:
      if (const auto size = take_unsigned(8); size > data_.size() - position_) {
        fail("a frame of " + std::to_string(size) + " bytes has " + std::to_string(data_.size() - position_));
      }
      return true;
    case kMark:
      marks_.push_back(stack_.size());
      return true;
    default:
      return run_number(opcode) || run_text(opcode) || run_container(opcode) || run_memo(opcode) || run_call(opcode);
  }
}

PickleRead PickleMachine::run() {
  for (;;) {
    opcode_position_ = position_;
    const char opcode = take(1)[0];
    if (opcode == kStop) break;
    if (!step(opcode)) fail("operation " + opcode_text(opcode) + " is " + refused_kind(opcode));
  }
  if (stack_.size() != 1 || !marks_.empty()) fail("it ends with other than one value");
  const PickleNode* node = stack_[0].node();
  const bool may_be_opaque = options_.names_as_values || options_.persistent_ids;
  if (node && node->is_opaque && !may_be_opaque) fail("a Python function or storage stands as a value");
  return {pop(), position_};
}

Result<PickleRead> read_pickle(std::string_view data, const PickleReaderOptions& options) {
  try {
    return PickleMachine(data, options).run();
  } catch (PickleMachine::Fault& fault) {
    return std::move(fault.error);
  }
}

}  // namespace cohort::base
