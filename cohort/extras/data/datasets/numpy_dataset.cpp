#include "cohort/extras/data/datasets/numpy_dataset.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <utility>

#include "cohort/comm/error/throw_error.h"
#include "cohort/extras/data/datasets/array_tensor.h"
#include "cohort/extras/files/arrays/npy.h"
#include "cohort/extras/files/arrays/npz.h"

namespace cohort::data::detail {

struct NumpyRows::State {
  files::RandomAccessFile file;
  files::ArrayLayout layout;
  /// All rows, if they are not contiguous in the file.
  files::ArrayData in_memory;
  std::vector<int64_t> row_shape = {};
  uint64_t row_bytes = 0;
};

NumpyRows NumpyRows::of(State state) {
  const auto& shape = state.layout.shape;
  TORCH_CHECK_VALUE(!shape.empty(), "[cohort] \"", state.file.path(),
                    "\" holds one number, but a NumpyDataset needs arrays with at least one dimension");
  state.row_shape.assign(shape.begin() + 1, shape.end());
  state.row_bytes = shape[0] == 0 ? 0 : state.layout.num_bytes / static_cast<uint64_t>(shape[0]);
  NumpyRows rows;
  rows.state_ = std::make_shared<const State>(std::move(state));
  return rows;
}

NumpyRows NumpyRows::open(const std::string& path) {
  State state{.file = comm::or_throw(files::RandomAccessFile::open(path)), .layout = {}, .in_memory = {}};
  state.layout = comm::or_throw(files::read_npy_layout(state.file));
  if (state.layout.is_fortran && state.layout.shape.size() > 1) {
    state.in_memory = comm::or_throw(files::read_array(state.file, state.layout));
  }
  return of(std::move(state));
}

std::vector<NumpyRows> NumpyRows::open_npz(const std::string& path, const std::vector<std::string>& names) {
  const files::NpzFile npz = comm::or_throw(files::NpzFile::open(path));
  std::vector<NumpyRows> arrays;
  for (const auto& name : names) {
    files::ArrayData array = comm::or_throw(npz.read(name));
    files::ArrayLayout layout{.dtype = array.dtype, .shape = array.shape, .num_bytes = array.num_bytes};
    arrays.push_back(of({.file = files::RandomAccessFile::view(path + "/" + name + ".npy", {}),
                         .layout = std::move(layout),
                         .in_memory = std::move(array)}));
  }
  return arrays;
}

void NumpyRows::copy_row(int64_t index, char* to) const {
  TORCH_CHECK_INDEX(index >= 0 && index < size(), "[cohort] example ", index, " is out of range for \"",
                    state_->file.path(), "\", which has ", size(), " rows");
  const uint64_t begin = static_cast<uint64_t>(index) * state_->row_bytes;
  if (state_->row_bytes == 0) return;
  if (state_->in_memory.bytes) {
    std::memcpy(to, state_->in_memory.bytes.get() + begin, state_->row_bytes);
    return;
  }
  comm::or_throw(files::read_elements(state_->file, state_->layout, begin, {to, state_->row_bytes}));
}

at::Tensor NumpyRows::row(int64_t index) const {
  at::Tensor tensor = at::empty(state_->row_shape, scalar_type_of(state_->layout.dtype));
  copy_row(index, static_cast<char*>(tensor.mutable_data_ptr()));
  return tensor;
}

at::Tensor NumpyRows::rows(const std::vector<int64_t>& indices) const {
  std::vector<int64_t> shape = {static_cast<int64_t>(indices.size())};
  shape.insert(shape.end(), state_->row_shape.begin(), state_->row_shape.end());
  at::Tensor tensor = at::empty(shape, scalar_type_of(state_->layout.dtype));
  auto* to = static_cast<char*>(tensor.mutable_data_ptr());
  for (const int64_t index : indices) {
    copy_row(index, to);
    to += state_->row_bytes;
  }
  return tensor;
}

int64_t NumpyRows::size() const { return state_->layout.shape[0]; }

int64_t check_numpy_rows(const NumpyRows* arrays, size_t count) {
  for (size_t i = 1; i < count; ++i) {
    TORCH_CHECK_VALUE(arrays[i].size() == arrays[0].size(), "[cohort] Size mismatch between arrays: array 0 has ",
                      arrays[0].size(), " rows, array ", i, " has ", arrays[i].size());
  }
  return count == 0 ? 0 : arrays[0].size();
}

}  // namespace cohort::data::detail
