/// Parses JSON from files that others may have written or damaged. Checks it before a library recurses into it, and returns
/// details that the library does not.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/elements/json_fwd.h"

namespace cohort::files {

struct CheckedJson {
  Json json;
  /// The keys of the outermost object, in the order of the text.
  std::vector<std::string> names;
};

/// Parses one object. `what` is a word such as "header" for errors like "the header is not JSON: ...". Fails for a key that
/// occurs twice in an object, and for nesting deeper than `max_depth`; a description of tensors needs 3.
base::Result<CheckedJson> parse_checked_json(std::string_view text, const std::string& what, size_t max_depth = 64);

}  // namespace cohort::files
