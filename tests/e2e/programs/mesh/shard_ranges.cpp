// Answers lines of cases with what this rank would hold, for tests/e2e/mesh to compare with Python's DTensor:
//
//   5,3 | 2,2 | 0,1 | S0 _S1:2   ->   3,1 | 0,2
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/mesh/shard.h"

namespace {

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> result;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (part.find_first_of("0123456789") != std::string::npos) result.push_back(std::stoll(part));
  }
  return result;
}

cohort::Placements placements(const std::string& text) {
  cohort::Placements result;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    if (word[0] == 'S') {
      result.emplace_back(cohort::Shard(std::stoll(word.substr(1))));
    } else if (word[0] == '_') {
      const auto colon = word.find(':');
      result.emplace_back(
          cohort::StridedShard(std::stoll(word.substr(2, colon - 2)), std::stoll(word.substr(colon + 1))));
    } else if (word[0] == 'P') {
      result.emplace_back(cohort::Partial());
    } else {
      result.emplace_back(cohort::Replicate());
    }
  }
  return result;
}

std::string text(const std::vector<int64_t>& numbers) {
  std::string result;
  for (const int64_t number : numbers) result += (result.empty() ? "" : ",") + std::to_string(number);
  return result;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> parts;
    std::istringstream stream(line);
    for (std::string part; std::getline(stream, part, '|');) parts.push_back(part);
    const auto held = cohort::mesh::compute_local_shape_and_global_offset(
        numbers(parts.at(0)), numbers(parts.at(1)), numbers(parts.at(2)), placements(parts.at(3)));
    std::printf("%s | %s\n", text(held.shape).c_str(), text(held.offset).c_str());
  }
  return 0;
}
