/// Mutator: makes new inputs out of those that are there: bits, sizes and numbers change, pieces come, go and repeat. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::fuzz {

/// Numbers that follow from the first alone (splitmix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// From 0 to end - 1; 0 for an end of 0.
  size_t below(size_t end) { return end ? next() % end : 0; }
  bool one_in(size_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

class Mutator {
 public:
  /// `tokens` are words of the format. Most inputs stay below 4 KiB and all at `max_bytes`.
  Mutator(std::vector<std::string> seeds, std::vector<std::string> tokens, size_t max_bytes);

  /// The same input for the same seed and number.
  std::string make(uint64_t seed, uint64_t number) const;

 private:
  void change(std::string* input, Random& random) const;
  void change_bytes(std::string* input, Random& random) const;
  void change_size(std::string* input, Random& random) const;
  void change_decimal(std::string* input, Random& random) const;
  void put_token(std::string* input, Random& random) const;
  void splice(std::string* input, Random& random) const;
  void repeat(std::string* input, Random& random, size_t max_bytes) const;

  const std::vector<std::string> seeds_;
  const std::vector<std::string> tokens_;
  const size_t max_bytes_;
};

/// The words of a dictionary as libFuzzer reads it: a line `name="text"` or `"text"` each, with \\, \" and \xAB in the text.
std::vector<std::string> parse_dictionary(std::string_view text);

}  // namespace cohort::fuzz
