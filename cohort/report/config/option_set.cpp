#include "cohort/report/config/option_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/files/tensors/elements/shown_text.h"

namespace cohort::report {
namespace {

using base::Error;
using base::Result;

constexpr size_t kLargestConfig = size_t{1} << 20;
constexpr size_t kWidestFlag = 28;

std::string canonical(std::string_view name) { return base::replace_all(std::string(name), "_", "-"); }

bool is_option_name(const std::string& name) {
  const auto is_allowed = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_' || letter == '.';
  };
  return !name.empty() && std::isalnum(static_cast<unsigned char>(name.front())) != 0 && name.back() != '.' &&
         name.find("..") == std::string::npos && std::all_of(name.begin(), name.end(), is_allowed);
}

std::string help_line(const std::string& flag, const std::string& text) {
  if (flag.size() > kWidestFlag) return fmt::format("  {}\n  {:{}}  {}\n", flag, "", kWidestFlag, text);
  return fmt::format("  {:{}}  {}\n", flag, kWidestFlag, text);
}

std::string help_of(const ProgramOption& option) {
  const std::string kind = kind_of(option.target), limits = limits_text(option.limits);
  const bool is_bool = std::holds_alternative<bool*>(option.target);
  const std::string flag = fmt::format("--{}{}{}{}", is_bool ? "[no-]" : "", option.name, is_bool ? "" : " ", kind);
  const std::string default_value = toml_text(value_of(option.target));
  const std::string with_limits = limits.empty() ? option.help : fmt::format("{}; {}", option.help, limits);
  return help_line(flag, fmt::format("{} [{}]", with_limits, default_value));
}

// Returns "optimizer" for "optimizer.lr".
std::string table_of_option(const std::string& name) {
  const size_t dot = name.find_last_of('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

}  // namespace

OptionSet::OptionSet(std::string program, std::string description)
    : program_(std::move(program)), description_(std::move(description)) {}

Result<void> OptionSet::add(ProgramOption option) {
  if (!is_option_name(option.name)) {
    return Error(fmt::format(
        "\"{}\" cannot be the name of an option: names are made of letters, digits, \"-\", \"_\" and \".\", "
        "and begin with a letter or digit",
        files::shortened(option.name)));
  }
  const std::string name = canonical(option.name);
  if (name == "help" || name == "config" || find(name)) {
    return Error(fmt::format("there is an option \"{}\" already", option.name));
  }
  const bool is_negation = name.starts_with("no-") && find(name.substr(3));
  const ProgramOption* negated = find("no-" + name);
  if (is_negation || (negated && std::holds_alternative<bool*>(option.target))) {
    return Error(fmt::format("the options \"{}\" and \"no-{}\" would have one flag",
                             is_negation ? name.substr(3) : name, is_negation ? name.substr(3) : name));
  }
  options_.push_back(std::move(option));
  return {};
}

const ProgramOption* OptionSet::find(std::string_view name) const {
  const std::string wanted = canonical(name);
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const ProgramOption& option) { return canonical(option.name) == wanted; });
  return found == options_.end() ? nullptr : &*found;
}

ProgramOption* OptionSet::find_mutable(std::string_view name) { return const_cast<ProgramOption*>(find(name)); }

Result<bool> OptionSet::parse(const std::vector<std::string>& arguments) {
  std::optional<std::string> config;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") return false;
    if (arguments[i].starts_with("--config=")) config = arguments[i].substr(9);
    if (arguments[i] != "--config") continue;
    if (i + 1 == arguments.size()) return Error("--config lacks its value, the name of a TOML file");
    config = arguments[++i];
  }
  if (config) {
    if (auto read = read_file(*config); !read) return read.error();
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (auto read = read_flag(arguments, i); !read) return read.error();
  }
  return true;
}

Result<void> OptionSet::read_file(const std::string& path) {
  auto text = base::read_file(path, kLargestConfig);
  if (!text) return Error("--config: the file cannot be read").caused_by(text.error());
  auto entries = parse_toml(path, *text);
  if (!entries) return entries.error();
  for (const TomlEntry& entry : *entries) {
    const std::string where = fmt::format("\"{}\", line {}: ", path, entry.line);
    ProgramOption* option = find_mutable(entry.name);
    if (!option) return unknown(files::shortened(entry.name), where);
    if (auto set = set_value(*option, entry.value); !set) {
      return Error(fmt::format("{}{} = {}: {}", where, option->name, files::shortened(toml_text(entry.value)),
                               set.error().message()));
    }
    option->is_given = true;
  }
  return {};
}

Result<void> OptionSet::read_flag(const std::vector<std::string>& arguments, size_t& at) {
  const std::string& argument = arguments[at];
  if (!argument.starts_with("--")) {
    return Error(fmt::format("\"{}\" is not an option; options begin with --", argument))
        .with_hint("--help lists the options");
  }
  const size_t equals = argument.find('=');
  const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
  std::optional<std::string> text;
  if (equals != std::string::npos) text = argument.substr(equals + 1);
  if (name == "config") {
    if (!text) ++at;
    return {};
  }
  ProgramOption* option = find_mutable(name);
  ProgramOption* negated = !option && canonical(name).starts_with("no-") ? find_mutable(name.substr(3)) : nullptr;
  const bool is_negation = negated && std::holds_alternative<bool*>(negated->target);
  if (!option && !is_negation) return unknown("--" + name, "");
  if (is_negation) {
    if (text) return Error(fmt::format("--{} takes no value", name));
    option = negated;
    text = "false";
  }
  if (!text && std::holds_alternative<bool*>(option->target)) text = "true";
  if (!text) {
    if (at + 1 == arguments.size() || arguments[at + 1].starts_with("--")) {
      return Error(fmt::format("--{} lacks its value", name));
    }
    text = arguments[++at];
  }
  auto value = parse_flag_value(*option, *text);
  const Result<void> set = value ? set_value(*option, *value) : Result<void>(value.error());
  if (!set) return Error(fmt::format("--{} {}: {}", name, files::quoted_name(*text), set.error().message()));
  option->is_given = true;
  return {};
}

Error OptionSet::unknown(std::string_view name, std::string_view where) const {
  const std::string prefix = name.starts_with("--") ? "--" : "";
  std::vector<std::string> names = {prefix + "config", prefix + "help"};
  if (prefix.empty()) names.clear();
  for (const ProgramOption& option : options_) names.push_back(prefix + option.name);
  return Error(fmt::format("{}there is no option {}{}", where, name, base::did_you_mean(name, names)))
      .with_hint("--help lists the options");
}

std::string OptionSet::help() const {
  std::string text = fmt::format("{}\n\nUsage: {} [--config FILE] [OPTIONS]\n\n", description_, program_);
  text += help_line("--config FILE", "options from a TOML file; flags change what it says");
  text += help_line("--help", "shows this text");
  auto section = sections_.begin();
  for (size_t i = 0; i < options_.size(); ++i) {
    for (; section != sections_.end() && section->begin == i; ++section) text += fmt::format("\n{}\n", section->title);
    text += help_of(options_[i]);
  }
  return text;
}

// Keys without a table come first, because after a table's name they would belong to it.
std::string OptionSet::to_toml() const {
  std::vector<std::string> tables = {""};
  for (const ProgramOption& option : options_) {
    const std::string table = table_of_option(option.name);
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) tables.push_back(table);
  }
  std::string text;
  for (const std::string& table : tables) {
    if (!table.empty()) text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", table);
    for (const ProgramOption& option : options_) {
      if (table_of_option(option.name) != table) continue;
      const std::string key = table.empty() ? option.name : option.name.substr(table.size() + 1);
      text += fmt::format("{} = {}  # {}\n", key, toml_text(value_of(option.target)),
                          base::replace_all(option.help, "\n", " "));
    }
  }
  return text;
}

HyperparameterList OptionSet::values() const {
  HyperparameterList values;
  for (const ProgramOption& option : options_) {
    const TomlValue value = value_of(option.target);
    const auto* scalar = std::get_if<TomlScalar>(&value);
    values.emplace_back(option.name, scalar ? *scalar : HyperparameterValue(toml_text(value)));
  }
  return values;
}

}  // namespace cohort::report
