/// Layout: which entries of a list of ranks stand at which place of a mesh, as sizes and strides. Pure arithmetic.
///
/// Follows torch/distributed/_mesh_layout.py and _pycute/layout.py, down to the normal form, because layouts decide
/// whether two meshes are equal and what slicing accepts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::mesh {

/// One axis. Several sizes only where it joins axes that are no neighbours: (2, 2):(4, 1) stands for 0, 1, 4, 5.
/// Always in normal form: no size is 1, and what can be one size is one. An axis of size 1 has none.
struct COHORT_TEST_API AxisLayout {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;

  bool operator==(const AxisLayout&) const = default;
  int64_t num_places() const;
  /// The entry at each place, the last size running fastest.
  std::vector<int64_t> entries() const;
  /// Strides fall from left to right.
  bool is_sorted() const;
  /// No two places have the same entry.
  bool is_orthogonal() const;
};

using Layout = std::vector<AxisLayout>;

/// Brings sizes and strides into normal form.
COHORT_TEST_API AxisLayout make_axis(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);
/// Axes whose places follow each other without gaps, the last one running fastest.
COHORT_TEST_API Layout dense_layout(const std::vector<int64_t>& sizes);
/// All axes as one.
COHORT_TEST_API AxisLayout joined(const Layout& layout);
/// What is missing of `num_entries`: where the copies of `axis` begin that together cover them all.
/// Throws c10::ValueError unless copies can.
COHORT_TEST_API AxisLayout complement(const AxisLayout& axis, int64_t num_entries);
/// `axis` as several axes: place i of `dense_layout(sizes)` has the entry of place i of `axis`.
/// Throws c10::ValueError where no strides say that. Requires as many places on both sides.
COHORT_TEST_API Layout unflattened(const AxisLayout& axis, const std::vector<int64_t>& sizes);
/// `layout`'s places once for each copy that together cover `num_entries`; the first list is that of entry 0.
COHORT_TEST_API std::vector<std::vector<int64_t>> all_copies(const Layout& layout, int64_t num_entries);

/// As Python writes a tuple of numbers, and each axis' strides: "(4,)", "((4, 1), 1)".
COHORT_TEST_API std::string tuple_text(const std::vector<int64_t>& numbers);
std::string strides_text(const Layout& layout);

}  // namespace cohort::mesh
