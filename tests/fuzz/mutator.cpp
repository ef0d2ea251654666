#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace cohort::fuzz {
namespace {

constexpr size_t kUsualBytes = 4096;

// Where limits are, and where numbers overflow.
constexpr uint64_t kNumbers[] = {0,
                                 1,
                                 2,
                                 7,
                                 8,
                                 16,
                                 127,
                                 128,
                                 255,
                                 256,
                                 4095,
                                 65535,
                                 65536,
                                 1 << 20,
                                 (1 << 20) + 1,
                                 (8 << 20) + 1,
                                 INT32_MAX,
                                 1ull << 31,
                                 UINT32_MAX,
                                 1ull << 32,
                                 1ull << 40,
                                 INT64_MAX - 7,
                                 INT64_MAX,
                                 1ull << 63,
                                 UINT64_MAX - 7,
                                 UINT64_MAX};

uint64_t interesting_number(Random& random) {
  const auto number = kNumbers[random.below(std::size(kNumbers))];
  return random.one_in(4) ? number + random.below(9) - 4 : number;
}

struct Range {
  size_t begin = 0;
  size_t size = 0;
};

// Short ones more often.
Range some_range(const std::string& input, Random& random) {
  const size_t begin = random.below(input.size() + 1);
  const size_t left = input.size() - begin;
  return {begin, random.one_in(3) ? random.below(left + 1) : random.below(std::min<size_t>(left, 16) + 1)};
}

std::string bytes_of(uint64_t number, size_t width, bool is_big_endian) {
  std::string bytes;
  for (size_t i = 0; i < width; ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
  if (is_big_endian) std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

}  // namespace

uint64_t Random::next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

Mutator::Mutator(std::vector<std::string> seeds, std::vector<std::string> tokens, size_t max_bytes)
    : seeds_(seeds.empty() ? std::vector<std::string>(1) : std::move(seeds)),
      tokens_(std::move(tokens)),
      max_bytes_(max_bytes) {}

std::string Mutator::make(uint64_t seed, uint64_t number) const {
  Random random(seed ^ (number * 0xd1342543de82ef95ull));
  auto input = seeds_[random.below(seeds_.size())];
  const size_t num_changes = 1 + random.below(random.one_in(4) ? 16 : 4);
  for (size_t i = 0; i < num_changes; ++i) change(&input, random);
  if (random.one_in(256)) repeat(&input, random, max_bytes_);
  input.resize(std::min(input.size(), max_bytes_));
  return input;
}

void Mutator::change(std::string* input, Random& random) const {
  const auto range = some_range(*input, random);
  switch (random.below(10)) {
    case 0:
    case 1:
      return change_bytes(input, random);
    case 2:
      return change_size(input, random);
    case 3:
      return change_decimal(input, random);
    case 4:
    case 5:
      return put_token(input, random);
    case 6:
      return splice(input, random);
    case 7:
      return repeat(input, random, kUsualBytes);
    case 8:
      input->erase(range.begin, range.size);
      return;
    default:
      if (random.one_in(4)) input->resize(range.begin);
      std::string more;
      for (size_t i = random.below(8); i > 0; --i) more.push_back(static_cast<char>(random.next()));
      input->insert(std::min(range.begin, input->size()), more);
  }
}

void Mutator::change_bytes(std::string* input, Random& random) const {
  if (input->empty()) return;
  for (size_t i = random.below(3) + 1; i > 0; --i) {
    char& byte = (*input)[random.below(input->size())];
    byte = static_cast<char>(random.one_in(2) ? byte ^ (1 << random.below(8)) : random.next());
  }
}

// As if a size stood there, of 1, 2, 4 or 8 bytes.
void Mutator::change_size(std::string* input, Random& random) const {
  const size_t width = size_t{1} << random.below(4);
  if (input->size() < width) return;
  const auto begin = random.below(input->size() - width + 1);
  const auto number = random.one_in(3) ? input->size() - begin + random.below(5) - 2 : interesting_number(random);
  input->replace(begin, width, bytes_of(number, width, random.one_in(4)));
}

// A number in digits, if one is behind a place.
void Mutator::change_decimal(std::string* input, Random& random) const {
  const auto digits = "0123456789";
  const auto begin = input->find_first_of(digits, random.below(input->size() + 1));
  if (begin == std::string::npos) return;
  const auto end = std::min(input->find_first_not_of(digits, begin), input->size());
  const auto number = interesting_number(random);
  auto text = random.one_in(3) ? std::to_string(static_cast<int64_t>(number)) : std::to_string(number);
  if (random.one_in(8)) text += text;
  if (random.one_in(8)) text.insert(0, "00");
  input->replace(begin, end - begin, text);
}

void Mutator::put_token(std::string* input, Random& random) const {
  if (tokens_.empty()) return;
  const auto& token = tokens_[random.below(tokens_.size())];
  const auto range = some_range(*input, random);
  input->replace(range.begin, random.one_in(2) ? 0 : std::min(range.size, token.size()), token);
}

// A piece of another input comes in, or replaces the end.
void Mutator::splice(std::string* input, Random& random) const {
  const auto& other = seeds_[random.below(seeds_.size())];
  const auto piece = some_range(other, random);
  const auto range = some_range(*input, random);
  if (random.one_in(2)) input->resize(range.begin);
  input->insert(std::min(range.begin, input->size()), other, piece.begin, piece.size);
}

// What takes time or stack for every piece shows it when there are many.
void Mutator::repeat(std::string* input, Random& random, size_t max_bytes) const {
  auto range = some_range(*input, random);
  if (max_bytes > kUsualBytes) range.size = std::min<size_t>(range.size, 1 + random.below(24));
  if (range.size == 0 || input->size() >= max_bytes) return;
  const auto most = (max_bytes - input->size()) / range.size;
  const auto times = max_bytes > kUsualBytes ? most : random.below(std::min<size_t>(most, 64) + 1);
  const auto piece = input->substr(range.begin, range.size);
  std::string all;
  for (size_t i = 0; i < times; ++i) all += piece;
  input->insert(range.begin, all);
}

std::vector<std::string> parse_dictionary(std::string_view text) {
  std::vector<std::string> tokens;
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto open = line.find('"');
    if (line.starts_with('#') || open == std::string_view::npos) continue;
    line = line.substr(open + 1, line.rfind('"') - open - 1);
    std::string token;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] != '\\' || i + 1 == line.size()) {
        token.push_back(line[i]);
      } else if (line[++i] == 'x' && i + 2 < line.size()) {
        token.push_back(static_cast<char>(std::stoi(std::string(line.substr(i + 1, 2)), nullptr, 16)));
        i += 2;
      } else {
        token.push_back(line[i]);
      }
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace cohort::fuzz
