/// The text in the header of a .npy file: a literal of a Python dictionary with the keys of an array.
///
///     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "cohort/extras/files/arrays/array_layout.h"

namespace cohort::files {

/// An error in a header, and the position of its byte.
struct NpyFault {
  size_t position = 0;
  std::string expected;
  std::string found;
};

class NpyHeader {
 public:
  NpyHeader(ArrayLayout layout) : state_(std::move(layout)) {}
  NpyHeader(NpyFault fault) : state_(std::move(fault)) {}
  explicit operator bool() const { return state_.index() == 0; }
  /// The layout, without offset and num_bytes.
  const ArrayLayout& layout() const { return std::get<0>(state_); }
  const NpyFault& fault() const { return std::get<1>(state_); }

 private:
  std::variant<ArrayLayout, NpyFault> state_;
};

/// Parses the three keys, each once, in any order; at most 64 dimensions, as in NumPy.
NpyHeader parse_npy_header(std::string_view text);

/// Returns the dictionary of a little-endian array in C order.
std::string format_npy_header(DType dtype, std::span<const int64_t> shape);

}  // namespace cohort::files
