/// JSON from files that others may have written or spoiled: checked before a library recurses into it, and with what the library
/// does not tell. Texts for errors that show a piece of such a file.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/result.h"

namespace cohort::files {

using Json = nlohmann::json;

struct CheckedJson {
  Json json;
  /// The keys of the outermost object, in the order of the text.
  std::vector<std::string> names;
};

/// One object. `what`: "header", for errors such as "the header is not JSON: ...". Fails for a key that comes twice in an object,
/// and for nesting deeper than `max_depth`; a description of tensors needs 3.
base::Result<CheckedJson> parse_checked_json(std::string_view text, const std::string& what, size_t max_depth = 64);

/// What stands in a damaged file may be long and not be text; neither belongs on a terminal.
std::string shortened(std::string text);
/// In quotes, shortened where it is long.
std::string quoted_name(const std::string& text);

}  // namespace cohort::files
