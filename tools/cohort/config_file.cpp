#include "tools/cohort/config_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"

namespace cohort::cli {

using base::Error;
using base::Result;

namespace {

Result<void> add_entry(const CLI::ConfigItem& item, const std::vector<Flag>& flags, std::vector<GivenFlag>* given) {
  std::string name = "--" + item.name;
  std::replace(name.begin() + 2, name.end(), '_', '-');
  std::vector<std::string> names;
  for (const Flag& flag : flags) {
    if (flag.name.size() > 2 && flag.name != "--config" && flag.name != "--help") names.push_back(flag.name.substr(2));
    if (flag.name != name || name == "--config" || name == "--help") continue;
    if (flag.takes_value) {
      given->push_back({name, base::join(item.inputs, ",")});
      return {};
    }
    const auto is_on = base::parse_bool(base::join(item.inputs, ","));
    if (!is_on) return Error(fmt::format("{} must be true or false", item.name));
    if (*is_on) given->push_back({name});
    return {};
  }
  return Error(fmt::format("unknown flag {}{}", item.name, base::did_you_mean(name.substr(2), names)));
}

}  // namespace

Result<std::vector<GivenFlag>> flags_from_text(const std::string& text, const std::vector<Flag>& flags) {
  std::vector<GivenFlag> given;
  try {
    std::istringstream stream(text);
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(stream)) {
      if (!item.parents.empty() || item.name == "++" || item.name == "--") {
        return Error("it has sections, which are not supported here");
      }
      if (Result<void> added = add_entry(item, flags, &given); !added) return added.error();
    }
  } catch (const CLI::Error& error) {
    return Error(error.what());
  }
  return given;
}

Result<std::vector<GivenFlag>> flags_from_file(const std::string& path, const std::vector<Flag>& flags) {
  const Result<std::string> text = base::read_file(path, kMostConfigBytes);
  auto given = text ? flags_from_text(*text, flags) : Result<std::vector<GivenFlag>>(text.error());
  if (given) return given;
  return Error(fmt::format("--config={} cannot be used", path)).caused_by(given.error());
}

}  // namespace cohort::cli
