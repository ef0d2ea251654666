#include "cohort/base/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>

namespace cohort::base {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string_view::npos; begin = end + 1) {
    parts.emplace_back(text.substr(begin, end - begin));
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::string quoted_list(const std::vector<std::string>& names) {
  return names.empty() ? "" : '"' + join(names, "\", \"") + '"';
}

std::string trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) - begin + 1));
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  if (from.empty()) return text;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::optional<long long> parse_int(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  std::string word = trim(text);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"1", "true", "yes", "on", "y", "t"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"", "0", "false", "no", "off", "n", "f"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::optional<std::string> closest_match(std::string_view word, const std::vector<std::string>& candidates) {
  const int limit = std::max<int>(1, static_cast<int>(word.size()) / 3);
  int best_distance = limit + 1;
  std::optional<std::string> best;
  for (const std::string& candidate : candidates) {
    // Each letter too many counts as one edit, so a word of a million letters costs little.
    const size_t longer = std::max(word.size(), candidate.size()), shorter = std::min(word.size(), candidate.size());
    if (longer - shorter >= static_cast<size_t>(best_distance)) continue;
    const int distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::optional<std::string> match = closest_match(word, candidates);
  return match ? fmt::format(" (did you mean \"{}\"?)", *match) : "";
}

std::string format_bytes(unsigned long long num_bytes) {
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (num_bytes < 1024) return fmt::format("{} B", num_bytes);
  double amount = static_cast<double>(num_bytes) / 1024;
  size_t unit = 0;
  // 1023.95 and above would print as "1024.0".
  while (amount >= 1023.95 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds < 0) return fmt::format("-{}", format_duration(-duration));
  if (seconds == 0) return "0 s";
  if (seconds < 1e-6) return fmt::format("{} ns", duration.count());
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 119.95) return fmt::format("{:.1f} s", seconds);
  const long long whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string signal_name(int signal_number) {
  const char* name = ::sigabbrev_np(signal_number);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal_number);
}

std::optional<int> signal_number(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < NSIG; ++number) {
    const char* candidate = ::sigabbrev_np(number);
    if (candidate && name == candidate) return number;
  }
  return std::nullopt;
}

std::string errno_text(int error_number) {
  const char* name = ::strerrorname_np(error_number);
  const char* words = ::strerrordesc_np(error_number);
  if (!name || !words) return fmt::format("error {}", error_number);
  return fmt::format("{} ({})", words, name);
}

std::string ranks_in_words(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0, last = 0; i < ranks.size(); i = last + 1) {
    last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last - i < 3) last = i;
    if (i > 0) text += last + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += " to " + std::to_string(ranks[last]);
  }
  return text;
}

}  // namespace cohort::base
