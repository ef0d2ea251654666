#include "cohort/parallel/zero/partition.h"

#include <algorithm>
#include <numeric>

namespace cohort::zero {

Partition partition_by_size(const std::vector<std::vector<int64_t>>& sizes, int world_size) {
  Partition partition(world_size, std::vector<std::vector<size_t>>(sizes.size()));
  std::vector<int64_t> load(world_size, 0);
  for (size_t group = 0; group < sizes.size(); ++group) {
    const auto& of_group = sizes[group];
    std::vector<size_t> places(of_group.size());
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) { return of_group[a] > of_group[b]; });
    for (const size_t place : places) {
      const auto least = std::min_element(load.begin(), load.end());
      *least += of_group[place];
      partition[least - load.begin()][group].push_back(place);
    }
  }
  return partition;
}

}  // namespace cohort::zero
