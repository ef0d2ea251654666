#include "tools/cohort/flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/base/text/text.h"

namespace cohort::cli {

using base::Error;
using base::Result;

namespace {

std::vector<std::string> names_of(const std::vector<Flag>& flags) {
  std::vector<std::string> names;
  for (const Flag& flag : flags) names.push_back(flag.name);
  return names;
}

Result<Flag> find_long_flag(const std::string& written, const std::vector<Flag>& flags) {
  std::string name = written;
  std::replace(name.begin() + 2, name.end(), '_', '-');
  std::vector<Flag> matches;
  for (const Flag& flag : flags) {
    if (flag.name == name) return flag;
    if (flag.name.starts_with(name)) matches.push_back(flag);
  }
  if (matches.size() == 1) return matches.front();
  if (!matches.empty()) {
    return Error(fmt::format("{} could be {}", written, base::join(names_of(matches), " or ")));
  }
  return Error(fmt::format("unknown flag {}{}", written, base::did_you_mean(name, names_of(flags))))
      .with_hint("cohort run --help lists the flags; the program's own flags go after the program");
}

/// Finds the flag of "-t 3", "-t3" or "-t=3".
Result<Flag> find_short_flag(const std::string& word, const std::vector<Flag>& flags) {
  for (const Flag& flag : flags) {
    if (flag.name.size() == 2 && word.starts_with(flag.name) && (flag.takes_value || word.size() == 2)) return flag;
  }
  return Error(fmt::format("unknown flag {}", word)).with_hint("cohort run --help lists the flags");
}

}  // namespace

Result<SplitCommandLine> split_command_line(const std::vector<std::string>& arguments, const std::vector<Flag>& flags) {
  SplitCommandLine split;
  size_t at = 0;
  for (; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    if (word == "--") {
      ++at;
      break;
    }
    if (word.size() < 2 || word[0] != '-') break;
    const bool is_long = word[1] == '-';
    const size_t equals = is_long ? word.find('=') : std::string::npos;
    const Result<Flag> flag = is_long ? find_long_flag(word.substr(0, equals), flags) : find_short_flag(word, flags);
    if (!flag) return flag.error();
    if (!flag->takes_value) {
      if (equals != std::string::npos) return Error(fmt::format("{} takes no value, got \"{}\"", flag->name, word));
      split.flags.push_back({flag->name});
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (!is_long && word.size() > 2) {
      value = word.substr(word[2] == '=' ? 3 : 2);  // "-t3" and "-t=3", as in argparse
    } else if (at + 1 < arguments.size()) {
      value = arguments[++at];
    } else {
      return Error(fmt::format("{} needs a value", flag->name));
    }
    split.flags.push_back({flag->name, std::move(value)});
  }
  split.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  return split;
}

}  // namespace cohort::cli
