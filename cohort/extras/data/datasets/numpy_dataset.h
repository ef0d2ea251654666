/// NumpyDataset: NumPy arrays of equal first size, as torch.utils.data.TensorDataset: example i is row i of each.
///
///     NumpyDataset dataset("images.npy", "labels.npy");
///     auto packed = numpy_dataset_of_npz<2>("data.npz", {"images", "labels"});
///     DataLoader loader(dataset, {.batch_size = 32, .shuffle = true});
///     for (auto& [image, label] : loader) ...
///
/// Reads rows of a .npy file when they are needed (with pread, directly into the tensor of the batch), so the file may be larger
/// than the memory. If it is shortened meanwhile, reading throws, unlike a mapped file, which raises SIGBUS. Reads members of an
/// archive, and files in Fortran order, whose rows are not contiguous, into memory at the beginning.
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

/// An array, read by rows.
class COHORT_API NumpyRows {
 public:
  /// Throws c10::Error for a file that is not a .npy file, and c10::ValueError for an array without dimensions.
  static NumpyRows open(const std::string& path);
  static std::vector<NumpyRows> open_npz(const std::string& path, const std::vector<std::string>& names);

  /// Returns a new tensor. Throws c10::IndexError outside [0, size() - 1], and c10::Error if reading fails.
  at::Tensor row(int64_t index) const;
  /// Returns [indices, ...], one tensor for the whole batch.
  at::Tensor rows(const std::vector<int64_t>& indices) const;
  int64_t size() const;

 private:
  struct State;
  static NumpyRows of(State state);
  void copy_row(int64_t index, char* to) const;
  std::shared_ptr<const State> state_;
};

/// Returns the common number of rows. Throws c10::ValueError if the arrays differ in it.
COHORT_API int64_t check_numpy_rows(const NumpyRows* arrays, size_t count);

}  // namespace detail

template <size_t N>
class NumpyDataset {
 public:
  /// Takes paths of .npy files. Throws c10::Error for other files, and c10::ValueError if lengths differ.
  template <typename... Paths>
  requires(sizeof...(Paths) == N &&
           (std::is_convertible_v<Paths, std::string> && ...)) explicit NumpyDataset(const Paths&... paths)
      : NumpyDataset(std::array<detail::NumpyRows, N>{detail::NumpyRows::open(paths)...}) {}
  explicit NumpyDataset(std::array<detail::NumpyRows, N> arrays)
      : arrays_(std::move(arrays)), size_(detail::check_numpy_rows(arrays_.data(), N)) {}

  /// Returns a tuple of N rows. Throws c10::IndexError outside [0, size() - 1].
  auto get(int64_t index) const {
    return tuple_of([index](const detail::NumpyRows& array) { return array.row(index); });
  }
  /// Returns the stacked rows of a batch.
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

/// Reads members of an .npz archive by their names, such as {"x", "y"}; arrays given to np.savez without a name are "arr_0" ...
template <size_t N>
NumpyDataset<N> numpy_dataset_of_npz(const std::string& path, const std::array<std::string, N>& names) {
  const auto rows = detail::NumpyRows::open_npz(path, {names.begin(), names.end()});
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return NumpyDataset<N>(std::array<detail::NumpyRows, N>{rows[I]...});
  }
  (std::make_index_sequence<N>());
}

}  // namespace cohort::data
