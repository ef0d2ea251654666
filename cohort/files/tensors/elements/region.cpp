#include "cohort/files/tensors/elements/region.h"

#include <algorithm>
#include <numeric>

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

bool ranges_overlap(const IndexRanges& a, const IndexRanges& b) {
  for (const IndexRange& left : a) {
    for (const IndexRange& right : b) {
      if (left.begin < right.end && right.begin < left.end) return true;
    }
  }
  return false;
}

// Returns the indices that both have along a dimension, with their positions in each.
std::vector<ElementRun> common_segments(const IndexRanges& from, const IndexRanges& to) {
  std::vector<ElementRun> segments;
  int64_t from_place = 0;
  for (const IndexRange& source : from) {
    int64_t to_place = 0;
    for (const IndexRange& target : to) {
      const int64_t begin = std::max(source.begin, target.begin);
      const int64_t end = std::min(source.end, target.end);
      const ElementRun segment{from_place + begin - source.begin, to_place + begin - target.begin, end - begin};
      to_place += target.size();
      if (segment.count <= 0) continue;
      ElementRun* last = segments.empty() ? nullptr : &segments.back();
      if (last && last->from + last->count == segment.from && last->to + last->count == segment.to) {
        last->count += segment.count;
      } else {
        segments.push_back(segment);
      }
    }
    from_place += source.size();
  }
  std::sort(segments.begin(), segments.end(), [](const ElementRun& a, const ElementRun& b) { return a.from < b.from; });
  return segments;
}

// Visits the runs of the dimension `dim` and those inside it. Adjacent runs are joined before they are visited.
class CommonRuns {
 public:
  CommonRuns(const Region& from, const Region& to, const std::function<Result<void>(const ElementRun&)>& visit)
      : from_(from), to_(to), visit_(visit) {
    for (size_t dim = 0; dim < from.size(); ++dim) segments_.push_back(common_segments(from[dim], to[dim]));
  }

  Result<void> visit_all() {
    if (segments_.empty()) return visit_({0, 0, 1});
    const bool is_empty =
        std::any_of(segments_.begin(), segments_.end(), [](const auto& list) { return list.empty(); });
    if (is_empty) return {};
    from_steps_ = steps_of(from_);
    to_steps_ = steps_of(to_);
    inner_ = innermost();
    if (Result<void> done = walk(0, 0, 0); !done) return done;
    return flush();
  }

 private:
  // Returns the distance in elements between neighbors of each dimension, and one more for the complete region.
  static std::vector<int64_t> steps_of(const Region& region) {
    std::vector<int64_t> steps(region.size() + 1, 1);
    for (size_t dim = region.size(); dim-- > 0;) steps[dim] = steps[dim + 1] * base::num_indices(region[dim]);
    return steps;
  }

  // Returns the outermost dimension whose segments are contiguous memory: the dimensions inside it are complete in both.
  size_t innermost() const {
    size_t dim = segments_.size() - 1;
    while (dim > 0) {
      const auto& list = segments_[dim];
      const int64_t covered = list.front().count * from_steps_[dim + 1];
      if (list.size() != 1 || covered != from_steps_[dim] || covered != to_steps_[dim]) break;
      --dim;
    }
    return dim;
  }

  Result<void> walk(size_t dim, int64_t from, int64_t to) {
    const int64_t from_step = from_steps_[dim + 1];
    const int64_t to_step = to_steps_[dim + 1];
    for (const ElementRun& segment : segments_[dim]) {
      if (dim == inner_) {
        Result<void> done =
            add({from + segment.from * from_step, to + segment.to * to_step, segment.count * from_step});
        if (!done) return done;
        continue;
      }
      for (int64_t i = 0; i < segment.count; ++i) {
        Result<void> done = walk(dim + 1, from + (segment.from + i) * from_step, to + (segment.to + i) * to_step);
        if (!done) return done;
      }
    }
    return {};
  }

  Result<void> add(const ElementRun& run) {
    if (waiting_.from + waiting_.count == run.from && waiting_.to + waiting_.count == run.to) {
      waiting_.count += run.count;
      return {};
    }
    Result<void> done = flush();
    waiting_ = run;
    return done;
  }

  Result<void> flush() { return waiting_.count > 0 ? visit_(waiting_) : Result<void>(); }

  const Region& from_;
  const Region& to_;
  const std::function<Result<void>(const ElementRun&)>& visit_;
  std::vector<std::vector<ElementRun>> segments_;
  std::vector<int64_t> from_steps_;
  std::vector<int64_t> to_steps_;
  size_t inner_ = 0;
  ElementRun waiting_;
};

}  // namespace

Region whole_region(const std::vector<int64_t>& shape) {
  return box_region(std::vector<int64_t>(shape.size(), 0), shape);
}

Region box_region(const std::vector<int64_t>& offsets, const std::vector<int64_t>& lengths) {
  Region region(offsets.size());
  for (size_t dim = 0; dim < offsets.size(); ++dim) {
    if (lengths[dim] > 0) region[dim] = {{offsets[dim], offsets[dim] + lengths[dim]}};
  }
  return region;
}

std::vector<int64_t> shape_of(const Region& region) {
  std::vector<int64_t> shape;
  for (const auto& ranges : region) shape.push_back(base::num_indices(ranges));
  return shape;
}

int64_t num_elements(const Region& region) { return num_elements(shape_of(region)); }

int64_t num_elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

bool overlaps(const Region& a, const Region& b) {
  for (size_t dim = 0; dim < a.size(); ++dim) {
    if (!ranges_overlap(a[dim], b[dim])) return false;
  }
  return true;
}

bool contains(const Region& outer, const Region& inner) {
  for (size_t dim = 0; dim < outer.size(); ++dim) {
    const auto& ranges = outer[dim];
    const bool all = std::all_of(inner[dim].begin(), inner[dim].end(), [&](const IndexRange& range) {
      return std::any_of(ranges.begin(), ranges.end(),
                         [&](const IndexRange& other) { return other.begin <= range.begin && range.end <= other.end; });
    });
    if (!all) return false;
  }
  return true;
}

std::vector<Region> boxes_of(const Region& region) {
  std::vector<Region> boxes{{}};
  for (const auto& ranges : region) {
    std::vector<Region> longer;
    for (const Region& box : boxes) {
      for (const IndexRange& range : ranges) {
        longer.push_back(box);
        longer.back().push_back({range});
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

std::string region_text(const Region& region) {
  std::string text;
  for (const auto& ranges : region) {
    text += text.empty() ? "" : ", ";
    for (size_t i = 0; i < ranges.size(); ++i) {
      text += (i ? "+" : "") + std::to_string(ranges[i].begin) + ":" + std::to_string(ranges[i].end);
    }
    if (ranges.empty()) text += "nothing";
  }
  return "[" + text + "]";
}

Result<void> check_region(const Region& region, const std::vector<int64_t>& shape) {
  if (region.size() != shape.size()) {
    return Error(region_text(region) + " has " + std::to_string(region.size()) + " dimensions, the tensor has " +
                 std::to_string(shape.size()));
  }
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    int64_t reached = 0;
    for (const IndexRange& range : region[dim]) {
      if (range.begin < reached || range.end <= range.begin || range.end > shape[dim]) {
        return Error(region_text(region) + " does not lie in the tensor: dimension " + std::to_string(dim) + " has " +
                     std::to_string(shape[dim]) + " indices");
      }
      reached = range.end;
    }
  }
  return {};
}

Result<void> for_each_common_run(const Region& from, const Region& to,
                                 const std::function<Result<void>(const ElementRun&)>& visit) {
  return CommonRuns(from, to, visit).visit_all();
}

Result<void> for_each_slice(const Region& region, int64_t max_elements,
                            const std::function<Result<void>(const Region&)>& visit) {
  const int64_t count = num_elements(region);
  if (count == 0) return {};
  if (count <= max_elements) return visit(region);
  // There is more than one element, so some dimension has more than one index.
  size_t dim = 0;
  while (base::num_indices(region[dim]) == 1) ++dim;
  const int64_t step = std::max<int64_t>(1, max_elements / (count / base::num_indices(region[dim])));
  for (const IndexRange& range : region[dim]) {
    for (int64_t begin = range.begin; begin < range.end; begin += step) {
      Region slice = region;
      slice[dim] = {{begin, std::min(range.end, begin + step)}};
      if (Result<void> done = for_each_slice(slice, max_elements, visit); !done) return done;
    }
  }
  return {};
}

std::optional<std::string> partition_problem(const std::vector<int64_t>& shape, const std::vector<Region>& parts) {
  int64_t sum = 0;
  std::vector<const Region*> sorted;
  for (const Region& part : parts) {
    if (Result<void> checked = check_region(part, shape); !checked) return checked.error().message();
    sum += num_elements(part);
    if (num_elements(part) > 0) sorted.push_back(&part);
  }
  const auto first_of = [](const Region* part) { return part->empty() ? 0 : part->front().front().begin; };
  const auto last_of = [](const Region* part) { return part->empty() ? 1 : part->front().back().end; };
  std::sort(sorted.begin(), sorted.end(), [&](const Region* a, const Region* b) { return first_of(a) < first_of(b); });
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t j = i + 1; j < sorted.size() && first_of(sorted[j]) < last_of(sorted[i]); ++j) {
      if (overlaps(*sorted[i], *sorted[j])) {
        return "parts overlap: " + region_text(*sorted[i]) + " and " + region_text(*sorted[j]);
      }
    }
  }
  if (sum == num_elements(shape)) return std::nullopt;
  return "parts have " + std::to_string(sum) + " of " + std::to_string(num_elements(shape)) + " elements";
}

}  // namespace cohort::files
