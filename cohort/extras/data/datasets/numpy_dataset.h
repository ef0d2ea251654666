/// NumpyDataset: NumPy arrays of equal first dimension; example i is row i of each, as torch.utils.data.TensorDataset.
///
///     NumpyDataset dataset("images.npy", "labels.npy");
///     auto packed = numpy_dataset_of_npz<2>("data.npz", {"images", "labels"});
///     DataLoader loader(dataset, {.batch_size = 32, .shuffle = true});
///     for (auto& [image, label] : loader) ...
///
/// Rows of a .npy file are read when they are asked for (by pread, straight into the tensor of the batch), so that it may
/// be larger than the memory, and a file that is shortened meanwhile is an error, not a SIGBUS as with a mapped file.
/// Members of an archive, and files in Fortran's order, whose rows do not lie in one piece, are read into memory at the
/// beginning.
///
/// Thread-safety: const; any number of threads may read. Copies share the files.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

namespace detail {

/// One array, by rows.
class COHORT_API NumpyRows {
 public:
  /// Throws c10::Error for what is no .npy file, c10::ValueError for an array without dimensions.
  static NumpyRows open(const std::string& path);
  static std::vector<NumpyRows> open_npz(const std::string& path, const std::vector<std::string>& names);

  /// A tensor of its own. Throws c10::IndexError outside [0, size() - 1], c10::Error when reading fails.
  at::Tensor row(int64_t index) const;
  /// [indices, ...], one tensor for the whole batch.
  at::Tensor rows(const std::vector<int64_t>& indices) const;
  int64_t size() const;

 private:
  struct State;
  static NumpyRows of(State state);
  void copy_row(int64_t index, char* to) const;
  std::shared_ptr<const State> state_;
};

/// Throws c10::ValueError unless all have the same number of rows; returns it.
COHORT_API int64_t check_numpy_rows(const NumpyRows* arrays, size_t count);

}  // namespace detail

template <size_t N>
class NumpyDataset {
 public:
  /// Paths of .npy files. Throws c10::Error for what is no such file, c10::ValueError for lengths that differ.
  template <typename... Paths>
  requires(sizeof...(Paths) == N &&
           (std::is_convertible_v<Paths, std::string> && ...)) explicit NumpyDataset(const Paths&... paths)
      : NumpyDataset(std::array<detail::NumpyRows, N>{detail::NumpyRows::open(paths)...}) {}
  explicit NumpyDataset(std::array<detail::NumpyRows, N> arrays)
      : arrays_(std::move(arrays)), size_(detail::check_numpy_rows(arrays_.data(), N)) {}

  /// A tuple of N rows. Throws c10::IndexError outside [0, size() - 1].
  auto get(int64_t index) const {
    return tuple_of([index](const detail::NumpyRows& array) { return array.row(index); });
  }
  /// The rows of a whole batch, stacked.
  auto get_batch(const std::vector<int64_t>& indices) const {
    return tuple_of([&indices](const detail::NumpyRows& array) { return array.rows(indices); });
  }
  int64_t size() const { return size_; }

 private:
  template <typename Read>
  auto tuple_of(Read read) const {
    return std::apply([&](const auto&... array) { return std::make_tuple(read(array)...); }, arrays_);
  }

  std::array<detail::NumpyRows, N> arrays_;
  int64_t size_;
};

template <typename... Paths>
requires(std::is_convertible_v<Paths, std::string>&&...) NumpyDataset(const Paths&...)
->NumpyDataset<sizeof...(Paths)>;

/// Members of an .npz archive by their names, such as {"x", "y"}; those of arrays given to np.savez without a name are
/// "arr_0" ...
template <size_t N>
NumpyDataset<N> numpy_dataset_of_npz(const std::string& path, const std::array<std::string, N>& names) {
  const auto rows = detail::NumpyRows::open_npz(path, {names.begin(), names.end()});
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return NumpyDataset<N>(std::array<detail::NumpyRows, N>{rows[I]...});
  }
  (std::make_index_sequence<N>());
}

}  // namespace cohort::data
