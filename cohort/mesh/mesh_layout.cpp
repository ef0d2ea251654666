#include "cohort/mesh/mesh_layout.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "cohort/base/numbers/count.h"

namespace cohort::mesh {
namespace {

int64_t product(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{1}, std::multiplies<>());
}

// Returns pairs (stride, size), in the order of the strides.
std::vector<std::pair<int64_t, int64_t>> by_stride(const AxisLayout& axis) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < axis.sizes.size(); ++i) pairs.emplace_back(axis.strides[i], axis.sizes[i]);
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

// Returns the axis that takes every `stride`-th place of `axis`, `size` times.
AxisLayout every(const AxisLayout& axis, int64_t size, int64_t stride) {
  if (size == 1) return {};
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  // Begins with the size that runs fastest: skips `stride` places, then keeps `size`.
  for (size_t i = axis.sizes.size(); i-- > 1;) {
    TORCH_CHECK_VALUE(axis.sizes[i] % stride == 0 || stride % axis.sizes[i] == 0, "[cohort] A mesh dimension of sizes ",
                      tuple_text(axis.sizes), " cannot be cut at every ", stride, " places");
    const int64_t kept = std::min(std::max(int64_t{1}, axis.sizes[i] / stride), size);
    if (kept != 1) {
      sizes.insert(sizes.begin(), kept);
      strides.insert(strides.begin(), stride * axis.strides[i]);
    }
    size /= kept;
    stride = base::divide_up(stride, axis.sizes[i]);
  }
  if (size != 1 || sizes.empty()) {
    sizes.insert(sizes.begin(), size);
    strides.insert(strides.begin(), stride * axis.strides.front());
  }
  return make_axis(sizes, strides);
}

}  // namespace

int64_t AxisLayout::num_places() const { return product(sizes); }

std::vector<int64_t> AxisLayout::entries() const {
  std::vector<int64_t> result{0};
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::vector<int64_t> next;
    for (const int64_t entry : result) {
      for (int64_t place = 0; place < sizes[i]; ++place) next.push_back(entry + place * strides[i]);
    }
    result = std::move(next);
  }
  return result;
}

bool AxisLayout::is_sorted() const { return std::is_sorted(strides.rbegin(), strides.rend()); }

bool AxisLayout::is_orthogonal() const {
  const auto pairs = by_stride(*this);
  for (size_t i = 1; i < pairs.size(); ++i) {
    if (pairs[i].first % (pairs[i - 1].first * pairs[i - 1].second) != 0) return false;
  }
  return true;
}

AxisLayout make_axis(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  AxisLayout axis;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    const bool continues = !axis.sizes.empty() && axis.sizes.front() * axis.strides.front() == strides[i];
    if (continues) {
      axis.sizes.front() *= sizes[i];
    } else {
      axis.sizes.insert(axis.sizes.begin(), sizes[i]);
      axis.strides.insert(axis.strides.begin(), strides[i]);
    }
  }
  return axis;
}

Layout dense_layout(const std::vector<int64_t>& sizes) {
  Layout layout(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    layout[i] = make_axis({sizes[i]}, {stride});
    stride *= sizes[i];
  }
  return layout;
}

AxisLayout joined(const Layout& layout) {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  for (const auto& axis : layout) {
    sizes.insert(sizes.end(), axis.sizes.begin(), axis.sizes.end());
    strides.insert(strides.end(), axis.strides.begin(), axis.strides.end());
  }
  return make_axis(sizes, strides);
}

AxisLayout complement(const AxisLayout& axis, int64_t num_entries) {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t covered = 1;
  for (const auto& [stride, size] : by_stride(axis)) {
    TORCH_CHECK_VALUE(stride > 0 && covered <= size * stride, "[cohort] A mesh layout of sizes ",
                      tuple_text(axis.sizes), " and strides ", tuple_text(axis.strides), " overlaps itself");
    sizes.insert(sizes.begin(), stride / covered);
    strides.insert(strides.begin(), covered);
    covered = size * stride;
  }
  sizes.insert(sizes.begin(), base::divide_up(num_entries, covered));
  strides.insert(strides.begin(), covered);
  return make_axis(sizes, strides);
}

Layout unflattened(const AxisLayout& axis, const std::vector<int64_t>& sizes) {
  Layout result;
  for (const auto& wanted : dense_layout(sizes)) {
    result.push_back(wanted.sizes.empty() ? AxisLayout{} : every(axis, wanted.sizes.front(), wanted.strides.front()));
  }
  return result;
}

std::vector<std::vector<int64_t>> all_copies(const Layout& layout, int64_t num_entries) {
  const auto whole = joined(layout);
  std::vector<std::vector<int64_t>> copies;
  for (const int64_t begin : complement(whole, num_entries).entries()) {
    auto& copy = copies.emplace_back(whole.entries());
    for (int64_t& entry : copy) entry += begin;
  }
  return copies;
}

std::string tuple_text(const std::vector<int64_t>& numbers) {
  return c10::str("(", c10::Join(", ", numbers), numbers.size() == 1 ? ",)" : ")");
}

std::string strides_text(const Layout& layout) {
  std::vector<std::string> texts;
  for (const auto& axis : layout) {
    texts.push_back(axis.strides.size() == 1 ? std::to_string(axis.strides.front()) : tuple_text(axis.strides));
  }
  return c10::str("(", c10::Join(", ", texts), texts.size() == 1 ? ",)" : ")");
}

}  // namespace cohort::mesh
