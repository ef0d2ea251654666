#include "cohort/base/net/url.h"

#include <algorithm>

#include "cohort/base/text/text.h"

namespace cohort::base {
namespace {

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::string decode(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const auto high = hex_digit(text[i + 1]);
      const auto low = hex_digit(text[i + 2]);
      if (high && low) {
        plain += static_cast<char>(*high * 16 + *low);
        i += 2;
        continue;
      }
    }
    plain += text[i] == '+' ? ' ' : text[i];
  }
  return plain;
}

/// Cuts `text` before `mark`. Returns the text behind the mark; nothing if there is no mark.
std::optional<std::string_view> cut_at(std::string_view* text, char mark) {
  const size_t place = text->find(mark);
  if (place == std::string_view::npos) return std::nullopt;
  const std::string_view behind = text->substr(place + 1);
  *text = text->substr(0, place);
  return behind;
}

}  // namespace

HostAndPort split_host_and_port(std::string_view text) {
  HostAndPort place;
  const size_t colon = text.rfind(':');
  const bool is_bare_v6 = text.find(':') != colon && text.front() != '[';
  if (colon != std::string_view::npos && !is_bare_v6 && text.back() != ']') {
    place.port = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  place.host = text;
  return place;
}

QueryParameters parse_query(std::string_view query) {
  QueryParameters parameters;
  for (const std::string& part : split(query, '&')) {
    if (part.empty()) continue;
    std::string_view name = part;
    const auto value = cut_at(&name, '=');
    parameters.emplace(decode(name), decode(value.value_or("")));
  }
  return parameters;
}

Url parse_url(std::string_view text) {
  Url url;
  const size_t mark = text.find("://");
  if (mark != std::string_view::npos && text.find_first_of("/?") > mark) {
    url.scheme = text.substr(0, mark);
    text = text.substr(mark + 3);
  }
  if (const auto query = cut_at(&text, '?')) url.parameters = parse_query(*query);
  const size_t slash = std::min(text.find('/'), text.size());
  url.path = text.substr(slash);
  url.place = split_host_and_port(text.substr(0, slash));
  return url;
}

}  // namespace cohort::base
