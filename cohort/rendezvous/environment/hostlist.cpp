#include "cohort/rendezvous/environment/hostlist.h"

#include <fmt/format.h>

#include "cohort/base/text/text.h"

namespace cohort::rendezvous {
namespace {

using Names = std::vector<std::string>;

constexpr size_t kMaxNames = 65'536;
// The limit for a host's name.
constexpr size_t kMaxNameBytes = 255;
// A width beyond this cannot be a zero-padded number.
constexpr size_t kMaxDigits = 18;

base::Error malformed(std::string_view text, const std::string& why) {
  return base::Error(fmt::format("\"{}\" is not a list of hosts: {}", text, why));
}

// Splits at commas that are outside of brackets.
base::Result<Names> split_names(std::string_view text) {
  Names names(1);
  bool in_brackets = false;
  for (const char letter : text) {
    if (letter == (in_brackets ? '[' : ']')) return malformed(text, "its brackets do not match");
    if (letter == '[' || letter == ']') in_brackets = letter == '[';
    if (letter == ',' && !in_brackets)
      names.emplace_back();
    else
      names.back() += letter;
  }
  if (in_brackets) return malformed(text, "its brackets do not match");
  return names;
}

// Expands "01-03" to 01, 02, 03, with the width of the first number.
base::Result<Names> expand_range(const std::string& range, std::string_view text) {
  const auto dash = range.find('-');
  const auto first = range.substr(0, dash);
  const auto last = dash == std::string::npos ? first : range.substr(dash + 1);
  const auto is_number = [](const std::string& word) {
    return !word.empty() && word.size() <= kMaxDigits && word.find_first_not_of("0123456789") == std::string::npos;
  };
  if (!is_number(first) || !is_number(last))
    return malformed(text, fmt::format("\"{}\" is not a range of numbers", range));
  const auto begin = std::stoull(first), end = std::stoull(last);
  if (end < begin) return malformed(text, fmt::format("the range \"{}\" runs backwards", range));
  if (end - begin >= kMaxNames) return malformed(text, fmt::format("it has more than {} names", kMaxNames));
  Names numbers;
  for (auto number = begin; number <= end; ++number) numbers.push_back(fmt::format("{:0{}}", number, first.size()));
  return numbers;
}

// Expands "01-03,7". The number of numbers has the same limit as the number of names.
base::Result<Names> expand_ranges(std::string_view ranges, std::string_view text) {
  Names numbers;
  for (const auto& range : base::split(ranges, ',')) {
    const auto expanded = expand_range(range, text);
    if (!expanded) return expanded.error();
    numbers.insert(numbers.end(), expanded->begin(), expanded->end());
    if (numbers.size() > kMaxNames) return malformed(text, fmt::format("it has more than {} names", kMaxNames));
  }
  return numbers;
}

// Combines every beginning with every number; later brackets vary fastest.
base::Result<Names> expand_name(const std::string& name, std::string_view text) {
  Names results(1);
  for (size_t begin = 0; begin < name.size();) {
    const auto open = name.find('[', begin);
    const auto plain = name.substr(begin, open - begin);
    if (results.front().size() + plain.size() > kMaxNameBytes) {
      return malformed(text, fmt::format("a name has more than {} letters", kMaxNameBytes));
    }
    for (auto& result : results) result += plain;
    if (open == std::string::npos) break;
    const auto close = name.find(']', open);
    const auto numbers = expand_ranges(std::string_view(name).substr(open + 1, close - open - 1), text);
    if (!numbers) return numbers.error();
    if (numbers->size() * results.size() > kMaxNames) {
      return malformed(text, fmt::format("it has more than {} names", kMaxNames));
    }
    Names products;
    for (const auto& result : results) {
      for (const auto& number : *numbers) products.push_back(result + number);
    }
    results = std::move(products);
    begin = close + 1;
  }
  if (results.front().empty()) return malformed(text, "a name is empty");
  return results;
}

}  // namespace

base::Result<Names> expand_hostlist(std::string_view text) {
  const auto names = split_names(text);
  if (!names) return names.error();
  Names hosts;
  for (const auto& name : *names) {
    const auto expanded = expand_name(name, text);
    if (!expanded) return expanded.error();
    hosts.insert(hosts.end(), expanded->begin(), expanded->end());
    if (hosts.size() > kMaxNames) return malformed(text, fmt::format("it has more than {} names", kMaxNames));
  }
  return hosts;
}

base::Result<std::vector<int>> expand_counts(std::string_view text) {
  std::vector<int> counts;
  for (const auto& part : base::split(text, ',')) {
    const auto open = part.find("(x");
    const auto count = base::parse_int(part.substr(0, open));
    std::optional<long long> times = 1;
    if (open != std::string::npos) {
      times = part.back() == ')' ? base::parse_int(part.substr(open + 2, part.size() - open - 3)) : std::nullopt;
    }
    const bool is_sane = count && *count >= 0 && *count <= 1 << 20 && times && *times >= 1 &&
                         counts.size() + static_cast<size_t>(*times) <= kMaxNames;
    if (!is_sane) return base::Error(fmt::format("\"{}\" is not a list of counts such as \"2(x3),1\"", text));
    counts.insert(counts.end(), static_cast<size_t>(*times), static_cast<int>(*count));
  }
  return counts;
}

}  // namespace cohort::rendezvous
