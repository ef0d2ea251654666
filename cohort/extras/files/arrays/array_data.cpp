#include "cohort/extras/files/arrays/array_data.h"

#include <fmt/format.h>

#include <utility>

namespace cohort::files {

base::Result<void> read_elements(const RandomAccessFile& file, const ArrayLayout& layout, uint64_t begin,
                                 std::span<char> to) {
  const auto what = fmt::format("{} elements", name_of(layout.dtype));
  if (auto done = file.read(layout.offset + begin, to, what); !done) return done;
  to_native(to, layout.dtype, layout.is_big_endian);
  return {};
}

base::Result<ArrayData> read_array(const RandomAccessFile& file, const ArrayLayout& layout) {
  auto bytes = std::make_unique_for_overwrite<char[]>(layout.num_bytes);
  const auto what = fmt::format("{} elements", name_of(layout.dtype));
  if (auto done = file.read(layout.offset, std::span(bytes.get(), layout.num_bytes), what); !done) return done.error();
  return take_array(layout, std::move(bytes));
}

ArrayData take_array(const ArrayLayout& layout, std::unique_ptr<char[]> bytes) {
  to_native(std::span(bytes.get(), layout.num_bytes), layout.dtype, layout.is_big_endian);
  ArrayData array{layout.dtype, layout.shape, std::move(bytes), layout.num_bytes};
  if (layout.is_fortran && layout.shape.size() > 1) {
    auto in_c_order = std::make_unique_for_overwrite<char[]>(layout.num_bytes);
    fortran_to_c(layout, array.bytes.get(), in_c_order.get());
    array.bytes = std::move(in_c_order);
  }
  return array;
}

}  // namespace cohort::files
