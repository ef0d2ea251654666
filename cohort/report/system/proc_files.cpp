#include "cohort/report/system/proc_files.h"

#include <string>
#include <vector>

#include "cohort/base/text/text.h"

namespace cohort::report {
namespace {

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (const std::string& word : base::split(line, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::optional<uint64_t> count_of(std::string_view word) {
  const auto value = base::parse_int(word);
  return value && *value >= 0 ? std::optional(static_cast<uint64_t>(*value)) : std::nullopt;
}

// Returns the words that follow `name` and a colon on one line.
std::vector<std::string> words_after(std::string_view text, std::string_view name) {
  for (const std::string& line : base::split(text, '\n')) {
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':') {
      return words_of(base::replace_all(line.substr(name.size() + 1), "\t", " "));
    }
  }
  return {};
}

}  // namespace

std::optional<uint64_t> kilobytes_field(std::string_view text, std::string_view name) {
  const auto words = words_after(text, name);
  if (words.size() != 2 || words[1] != "kB") return std::nullopt;
  const auto value = count_of(words[0]);
  return value ? std::optional(*value * 1024) : std::nullopt;
}

std::optional<uint64_t> number_field(std::string_view text, std::string_view name) {
  const auto words = words_after(text, name);
  return words.size() == 1 ? count_of(words[0]) : std::nullopt;
}

std::optional<CpuTicks> host_cpu_ticks(std::string_view stat) {
  // user nice system idle iowait irq softirq steal; user includes guests.
  const auto words = words_of(base::first_line(stat));
  if (words.size() < 5 || words[0] != "cpu") return std::nullopt;
  CpuTicks ticks;
  for (size_t i = 1; i < words.size() && i <= 8; ++i) {
    const auto value = count_of(words[i]);
    if (!value) return std::nullopt;
    ticks.total += *value;
    if (i != 4 && i != 5) ticks.busy += *value;
  }
  return ticks;
}

std::optional<NetworkBytes> network_bytes(std::string_view net_dev) {
  NetworkBytes bytes;
  bool is_known = false;
  for (const std::string& line : base::split(net_dev, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;  // a heading
    const auto words = words_of(std::string_view(line).substr(colon + 1));
    const auto received = words.size() > 8 ? count_of(words[0]) : std::nullopt;
    const auto sent = words.size() > 8 ? count_of(words[8]) : std::nullopt;
    if (!received || !sent) return std::nullopt;
    is_known = true;
    if (base::trim(line.substr(0, colon)) == "lo") continue;
    bytes.received += *received;
    bytes.sent += *sent;
  }
  return is_known ? std::optional(bytes) : std::nullopt;
}

}  // namespace cohort::report
