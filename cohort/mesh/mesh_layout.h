/// Layout: which entry of a list of ranks each place of a mesh has, as sizes and strides. Pure arithmetic.
///
/// Follows torch/distributed/_mesh_layout.py and _pycute/layout.py, down to the normal form, because layouts decide
/// whether two meshes are equal and what slicing accepts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::mesh {

/// One axis. It has several sizes only if it joins axes that are not neighbors: (2, 2):(4, 1) stands for 0, 1, 4, 5.
/// Always in normal form: sizes of 1 are left out, and sizes that can be merged are merged. An axis of size 1 has no sizes.
struct COHORT_TEST_API AxisLayout {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;

  bool operator==(const AxisLayout&) const = default;
  int64_t num_places() const;
  /// Returns the entry at each place, the last size running fastest.
  std::vector<int64_t> entries() const;
  /// Whether strides decrease from left to right.
  bool is_sorted() const;
  /// Whether all places have different entries.
  bool is_orthogonal() const;
};

using Layout = std::vector<AxisLayout>;

/// Brings sizes and strides into normal form.
COHORT_TEST_API AxisLayout make_axis(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);
/// Returns axes whose places follow each other without gaps, the last one running fastest.
COHORT_TEST_API Layout dense_layout(const std::vector<int64_t>& sizes);
/// Joins all axes to one.
COHORT_TEST_API AxisLayout joined(const Layout& layout);
/// Returns the layout of the copies' first entries, if copies of `axis` are to cover all of `num_entries` together.
/// Throws c10::ValueError if copies cannot.
COHORT_TEST_API AxisLayout complement(const AxisLayout& axis, int64_t num_entries);
/// Splits `axis` into several axes: place i of `dense_layout(sizes)` has the entry of place i of `axis`.
/// Throws c10::ValueError if strides cannot express that. Requires: as many places on both sides.
COHORT_TEST_API Layout unflattened(const AxisLayout& axis, const std::vector<int64_t>& sizes);
/// Returns the entries of every copy of `layout` that together cover `num_entries`; the first copy has entry 0.
COHORT_TEST_API std::vector<std::vector<int64_t>> all_copies(const Layout& layout, int64_t num_entries);

/// Returns Python's text of a tuple of numbers, and of each axis' strides: "(4,)", "((4, 1), 1)".
COHORT_TEST_API std::string tuple_text(const std::vector<int64_t>& numbers);
std::string strides_text(const Layout& layout);

}  // namespace cohort::mesh
