// Answers lines of cases, "ranks | sizes of a group | sizes of the next", with the places that each rank owns in each group,
// in their order, for zero_test.py to compare with Python's ZeroRedundancyOptimizer:
//
//   2 | 1,9,4 | 3   ->   1|;2,0|0
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "cohort/parallel/zero/partition.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream parts(line);
    std::string part;
    std::getline(parts, part, '|');
    const int world_size = std::stoi(part);
    std::vector<std::vector<int64_t>> sizes;
    while (std::getline(parts, part, '|')) {
      sizes.emplace_back();
      std::istringstream group(part);
      for (std::string size; std::getline(group, size, ',');) {
        if (size.find_first_of("0123456789") != std::string::npos) sizes.back().push_back(std::stoll(size));
      }
    }
    const auto partition = cohort::zero::partition_by_size(sizes, world_size);
    for (size_t rank = 0; rank < partition.size(); ++rank) {
      std::cout << (rank > 0 ? ";" : "");
      for (size_t group = 0; group < partition[rank].size(); ++group) {
        std::cout << (group > 0 ? "|" : "");
        const auto& places = partition[rank][group];
        for (size_t i = 0; i < places.size(); ++i) std::cout << (i > 0 ? "," : "") << places[i];
      }
    }
    std::cout << '\n';
  }
  return 0;
}
