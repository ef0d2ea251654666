#include "cohort/base/pickle/pickle_value.h"

#include "cohort/base/pickle/pickle_node.h"

namespace cohort::base {

std::string_view kind_text(PickleKind kind) {
  constexpr std::string_view kTexts[] = {"NoneType",     "bool", "int",   "float", "complex",           "str",
                                         "bytes",        "list", "tuple", "dict",  "function or class", "object",
                                         "persistent id"};
  return kTexts[static_cast<size_t>(kind)];
}

PickleValue::PickleValue(std::shared_ptr<PickleNode> node) : kind_(node->kind), node_(std::move(node)) {}

PickleValue PickleValue::of_bool(bool value) {
  PickleValue result;
  result.kind_ = PickleKind::kBool;
  result.int_ = value ? 1 : 0;
  return result;
}

PickleValue PickleValue::of_int(int64_t value) {
  PickleValue result;
  result.kind_ = PickleKind::kInt;
  result.int_ = value;
  return result;
}

PickleValue PickleValue::of_float(double value) {
  PickleValue result;
  result.kind_ = PickleKind::kFloat;
  result.float_ = value;
  return result;
}

PickleValue PickleValue::of_complex(std::complex<double> value) {
  return PickleValue(std::make_shared<PickleComplexNode>(value));
}

PickleValue PickleValue::of_text(std::string utf8) {
  return PickleValue(std::make_shared<PickleTextNode>(PickleKind::kText, std::move(utf8)));
}

PickleValue PickleValue::of_bytes(std::string bytes) {
  return PickleValue(std::make_shared<PickleTextNode>(PickleKind::kBytes, std::move(bytes)));
}

PickleValue PickleValue::view_of_bytes(std::string_view bytes) {
  return PickleValue(std::make_shared<PickleTextNode>(PickleKind::kBytes, bytes));
}

PickleValue PickleValue::list(std::vector<PickleValue> items) {
  return PickleValue(std::make_shared<PickleItemsNode>(PickleKind::kList, std::move(items)));
}

PickleValue PickleValue::tuple(std::vector<PickleValue> items) {
  return PickleValue(std::make_shared<PickleItemsNode>(PickleKind::kTuple, std::move(items)));
}

PickleValue PickleValue::dict(std::vector<PickleEntry> entries) {
  return PickleValue(std::make_shared<PickleDictNode>(std::move(entries)));
}

PickleValue PickleValue::of_name(std::string module, std::string name) {
  return PickleValue(std::make_shared<PickleNameNode>(PythonName{std::move(module), std::move(name)}));
}

PickleValue PickleValue::object(PythonName callable, std::vector<PickleValue> arguments) {
  return object(std::move(callable), PickleParts{.arguments = std::move(arguments)});
}

PickleValue PickleValue::object(PythonName callable, PickleParts parts) {
  auto node = std::make_shared<PickleObjectNode>(of_name(std::move(callable.module), std::move(callable.name)),
                                                 tuple(std::move(parts.arguments)), parts.by_new);
  node->items = std::move(parts.items);
  node->entries = std::move(parts.entries);
  node->state = std::move(parts.state);
  return PickleValue(std::move(node));
}

PickleValue PickleValue::persistent(PickleValue id) {
  return PickleValue(std::make_shared<PicklePersistentNode>(std::move(id)));
}

std::complex<double> PickleValue::to_complex() const {
  const auto* own = dynamic_cast<const PickleComplexNode*>(node());
  return own ? own->value : std::complex<double>();
}

bool PickleValue::is_text(std::string_view wanted) const { return is(PickleKind::kText) && text() == wanted; }

std::string_view PickleValue::text() const {
  const auto* own = dynamic_cast<const PickleTextNode*>(node());
  return own ? own->text : std::string_view();
}

const std::vector<PickleValue>& PickleValue::items() const {
  static const std::vector<PickleValue> nothing;
  if (const auto* own = dynamic_cast<const PickleItemsNode*>(node())) return own->items;
  const auto* object = dynamic_cast<const PickleObjectNode*>(node());
  return object ? object->items : nothing;
}

const std::vector<PickleEntry>& PickleValue::entries() const {
  static const std::vector<PickleEntry> nothing;
  if (const auto* own = dynamic_cast<const PickleDictNode*>(node())) return own->entries;
  const auto* object = dynamic_cast<const PickleObjectNode*>(node());
  return object ? object->entries : nothing;
}

const PickleValue* PickleValue::find(std::string_view key) const {
  for (const PickleEntry& entry : entries()) {
    if (entry.key.is_text(key)) return &entry.value;
  }
  return nullptr;
}

const PythonName& PickleValue::name() const {
  static const PythonName nothing;
  if (const auto* own = dynamic_cast<const PickleNameNode*>(node())) return own->name;
  const auto* object = dynamic_cast<const PickleObjectNode*>(node());
  return object ? object->callable.name() : nothing;
}

const std::vector<PickleValue>& PickleValue::arguments() const {
  static const std::vector<PickleValue> nothing;
  const auto* object = dynamic_cast<const PickleObjectNode*>(node());
  return object ? object->arguments.items() : nothing;
}

const PickleValue& PickleValue::object_state() const {
  static const PickleValue none;
  const auto* object = dynamic_cast<const PickleObjectNode*>(node());
  return object ? object->state : none;
}

const PickleValue& PickleValue::id() const {
  static const PickleValue none;
  const auto* own = dynamic_cast<const PicklePersistentNode*>(node());
  return own ? own->id : none;
}

const void* PickleValue::identity() const { return node(); }

bool is_by_new(const PickleValue& object) {
  const auto* node = static_cast<const PickleNode*>(object.identity());
  const auto* own = dynamic_cast<const PickleObjectNode*>(node);
  return own && own->by_new;
}

}  // namespace cohort::base
