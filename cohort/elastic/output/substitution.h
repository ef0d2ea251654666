/// torchrun's macros: `${local_rank}` in a worker's arguments, `${role_name}` in its line prefix.
#pragma once

#include <map>
#include <string>

namespace cohort::elastic {

/// Replaces `${name}` and `$name` with their values and `$$` with `$`; names without a value stay as they are. The rules are
/// those of Python's string.Template.safe_substitute.
std::string substitute(const std::string& text, const std::map<std::string, std::string>& values);

}  // namespace cohort::elastic
