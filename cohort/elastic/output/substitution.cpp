#include "cohort/elastic/output/substitution.h"

#include <cctype>

namespace cohort::elastic {
namespace {

bool starts_name(char c) { return c == '_' || (std::isalpha(static_cast<unsigned char>(c)) != 0); }
bool continues_name(char c) { return starts_name(c) || (c >= '0' && c <= '9'); }

/// Returns the name that begins at `at`; empty if none does.
std::string name_at(const std::string& text, size_t at) {
  if (at >= text.size() || !starts_name(text[at])) return {};
  size_t end = at + 1;
  while (end < text.size() && continues_name(text[end])) ++end;
  return text.substr(at, end - at);
}

}  // namespace

std::string substitute(const std::string& text, const std::map<std::string, std::string>& values) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '$') {
      result += text[at++];
      continue;
    }
    if (at + 1 < text.size() && text[at + 1] == '$') {
      result += '$';
      at += 2;
      continue;
    }
    const bool braced = at + 1 < text.size() && text[at + 1] == '{';
    const std::string name = name_at(text, at + (braced ? 2 : 1));
    const size_t length = name.size() + (braced ? 3 : 1);
    const bool closed = !braced || (at + length <= text.size() && text[at + length - 1] == '}');
    const auto value = values.find(name);
    if (name.empty() || !closed || value == values.end()) {
      result += text[at++];
      continue;
    }
    result += value->second;
    at += length;
  }
  return result;
}

}  // namespace cohort::elastic
