#include "cohort/files/tensors/elements/checked_json.h"

#include <optional>
#include <set>
#include <utility>

#include "cohort/base/text/json_text.h"
#include "cohort/files/tensors/elements/shown_text.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

// Finds what a parsed object does not tell: the order of its keys, and whether one occurs twice. Reads the text separately,
// because the library's callbacks during parsing would visit all previous tensors for each tensor.
class KeyWatcher final : public nlohmann::json_sax<Json> {
 public:
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool key(std::string& text) override {
    const std::string& key = text;
    const bool is_name = keys_.size() == 1;
    if (is_name) names_.push_back(key);
    if (!keys_.back().insert(key).second && !duplicate_) {
      duplicate_ = std::string(is_name ? "the name " : "the key ") + quoted_name(key) + " comes twice";
    }
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(Json::number_integer_t) override { return true; }
  bool number_unsigned(Json::number_unsigned_t) override { return true; }
  bool number_float(Json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override { return false; }

  const std::optional<std::string>& duplicate() const { return duplicate_; }
  std::vector<std::string>& names() { return names_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::vector<std::string> names_;
  std::optional<std::string> duplicate_;
};

}  // namespace

Result<CheckedJson> parse_checked_json(std::string_view text, const std::string& what, size_t max_depth) {
  if (text.empty() || text.front() != '{') return Error("the " + what + " does not begin with {");
  // The library's functions recurse into nested values, and too deep nesting would overflow the stack.
  if (base::json_depth(text) > max_depth)
    return Error("the " + what + " is nested deeper than any description of tensors");
  KeyWatcher watcher;
  try {
    Json::sax_parse(text.begin(), text.end(), &watcher);
    Json json = Json::parse(text.begin(), text.end());
    if (watcher.duplicate()) return Error(*watcher.duplicate());
    return CheckedJson{std::move(json), std::move(watcher.names())};
  } catch (const Json::exception& error) {
    return Error("the " + what + " is not JSON: " + shortened(error.what()));
  }
}

}  // namespace cohort::files
