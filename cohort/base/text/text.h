/// Texts for people: suggestions, sizes, durations, names of signals and errors. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::base {

/// Returns the parts between separators; "a,,b" has three, "" has one empty part.
std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::string trim(std::string_view text);
/// Returns the first line without its newline; the complete text if there is none.
std::string first_line(std::string_view text);
std::string replace_all(std::string text, std::string_view from, std::string_view to);
/// Returns `"a", "b"`.
std::string quoted_list(const std::vector<std::string>& names);
/// Converts a text to the value type of stores.
inline std::vector<uint8_t> to_bytes(std::string_view text) { return {text.begin(), text.end()}; }

/// Returns "rank 3", "ranks 1, 2 and 5", or "ranks 0 and 4 to 1023": four ranks or more in a row are a range.
std::string ranks_in_words(const std::vector<int>& ranks);

/// Parses the complete text as a decimal integer; nothing for "", "3x" or a number that does not fit.
std::optional<long long> parse_int(std::string_view text);
/// As parse_int, for a finite decimal number such as "0.5".
std::optional<double> parse_double(std::string_view text);
std::optional<bool> parse_bool(std::string_view text);

/// Returns the number of insertions, deletions, replacements and swaps of neighbors that turn one word into the other.
int edit_distance(std::string_view a, std::string_view b);
/// Returns the candidate nearest to `word`; nothing if no candidate is near enough to be a typing error.
std::optional<std::string> closest_match(std::string_view word, const std::vector<std::string>& candidates);
/// Returns ` (did you mean "gloo"?)`, or "" if no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

/// Returns "512 B", "25.0 MiB", "1.5 GiB".
std::string format_bytes(unsigned long long num_bytes);
/// Returns "12 us", "250 ms", "30.0 s", "5 min 12 s", "3 h 20 min".
std::string format_duration(std::chrono::nanoseconds duration);

/// Returns "SIGKILL"; "signal 99" for a number without a name.
std::string signal_name(int signal_number);
/// Returns the number of "SIGTERM" or "TERM"; nothing for an unknown name.
std::optional<int> signal_number(std::string_view name);
/// Returns "No such file or directory (ENOENT)".
std::string errno_text(int error_number);

}  // namespace cohort::base
