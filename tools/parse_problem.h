/// Names the unknown word of a command line that CLI11 has refused, and the nearest known one.
#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <string>
#include <vector>

#include "cohort/base/text/text.h"

namespace cohort {

/// Returns the text for `error`, with which `app` has refused a command line. `synonyms` are other programs' names for its
/// commands.
inline std::string parse_problem(const CLI::App& app, const CLI::ParseError& error,
                                 const std::map<std::string, std::string>& synonyms = {}) {
  const auto rest = app.remaining(/*recurse=*/true);
  if (rest.empty()) return error.what();
  const std::string& word = rest.front();
  const auto chosen = app.get_subcommands();
  const auto commands = app.get_subcommands({});
  std::vector<std::string> names;
  if (!word.starts_with('-') && chosen.empty() && !commands.empty()) {
    for (const auto* command : commands) names.push_back(command->get_name());
    const auto meant = synonyms.find(word);
    return "\"" + word + "\" is not a command of " + app.get_name() +
           base::did_you_mean(meant == synonyms.end() ? word : meant->second, names);
  }
  for (const auto* option : (chosen.empty() ? &app : chosen.front())->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return "unknown argument " + word + base::did_you_mean(word.substr(0, word.find('=')), names);
}

}  // namespace cohort
