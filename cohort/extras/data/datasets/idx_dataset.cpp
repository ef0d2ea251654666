#include "cohort/extras/data/datasets/idx_dataset.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cohort/comm/error/throw_error.h"
#include "cohort/extras/data/datasets/array_tensor.h"
#include "cohort/extras/data/datasets/download.h"
#include "cohort/extras/files/arrays/idx.h"

namespace cohort::data {
namespace {

constexpr int64_t kImageDims = 3;  // in a file of images: number, height, width

// Returns the path of the file, or of the same with .gz; `path` if neither exists.
std::string find_idx(const std::string& path) {
  std::error_code error;
  for (const char* ending : {"", ".gz"}) {
    // Takes a file that cannot be examined, too, as opening it reports why.
    if (std::filesystem::exists(path + ending, error) || error) return path + ending;
  }
  return path;
}

struct MnistPaths {
  std::string images;
  std::string labels;
};

MnistPaths mnist_paths(const std::string& root, const std::string& name, bool train) {
  const std::string stem = root + "/" + name + "/raw/" + (train ? "train" : "t10k");
  return {find_idx(stem + "-images-idx3-ubyte"), find_idx(stem + "-labels-idx1-ubyte")};
}

// `set`: its name in the catalog of downloads.
MnistPaths find_mnist(const std::string& root, const std::string& name, const std::string& set,
                      const MNISTOptions& options) {
  std::error_code error;
  MnistPaths paths = mnist_paths(root, name, options.train);
  for (const auto& path : {paths.images, paths.labels}) {
    if (std::filesystem::exists(path, error) || error) continue;
    if (options.download) {
      download(set, root);
      return mnist_paths(root, name, options.train);
    }
    TORCH_CHECK(false, "[cohort] ", name, " is not there: neither \"", path,
                "\" nor the same with .gz exists\n  hint: set .download = true, or run: cohort-data fetch ", set,
                " --root ", root);
  }
  return paths;
}

}  // namespace

IdxDataset::IdxDataset(const std::string& images_path, const std::string& labels_path) {
  images_ = detail::to_tensor(comm::or_throw(files::read_idx(images_path)));
  const at::Tensor labels = detail::to_tensor(comm::or_throw(files::read_idx(labels_path)));
  TORCH_CHECK_VALUE(images_.dim() > 0, "[cohort] \"", images_path,
                    "\" holds one number, but images need at least one dimension");
  TORCH_CHECK_VALUE(labels.dim() == 1, "[cohort] \"", labels_path, "\" has ", labels.dim(),
                    " dimensions, but labels have one");
  TORCH_CHECK_VALUE(!labels.is_floating_point(), "[cohort] \"", labels_path, "\" holds labels of type ",
                    labels.scalar_type(), ", but they must be whole numbers");
  TORCH_CHECK_VALUE(labels.size(0) == images_.size(0), "[cohort] \"", images_path, "\" has ", images_.size(0),
                    " images, but \"", labels_path, "\" has ", labels.size(0), " labels");
  if (images_.dim() == kImageDims) images_ = images_.unsqueeze(1);
  labels_ = labels.to(at::kLong);
}

IdxDataset::Example IdxDataset::get(int64_t index) const {
  auto [images, labels] = get_batch({index});
  return {images.squeeze(0), labels.const_data_ptr<int64_t>()[0]};
}

std::pair<at::Tensor, at::Tensor> IdxDataset::get_batch(const std::vector<int64_t>& indices) const {
  std::vector<int64_t> shape = images_.sizes().vec();
  shape[0] = static_cast<int64_t>(indices.size());
  at::Tensor images = at::empty(shape, images_.scalar_type());
  at::Tensor labels = at::empty(shape[0], at::kLong);
  const size_t row_bytes = size() == 0 ? 0 : images_.nbytes() / static_cast<size_t>(size());
  const auto* const from = static_cast<const char*>(images_.const_data_ptr());
  auto* to = static_cast<char*>(images.mutable_data_ptr());
  auto* label = labels.mutable_data_ptr<int64_t>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size(), "[cohort] example ", index,
                      " is out of range for an IdxDataset of ", size(), " examples");
    if (row_bytes > 0) std::memcpy(to, from + static_cast<size_t>(index) * row_bytes, row_bytes);
    to += row_bytes;
    *label++ = labels_.const_data_ptr<int64_t>()[index];
  }
  return {std::move(images), std::move(labels)};
}

MNIST::MNIST(const std::string& root, MNISTOptions options) : MNIST(root, "MNIST", "mnist", options) {}

MNIST::MNIST(const std::string& root, const std::string& name, const std::string& set, MNISTOptions options)
    : IdxDataset([&] {
        const MnistPaths paths = find_mnist(root, name, set, options);
        return IdxDataset(paths.images, paths.labels);
      }()) {}

std::vector<std::string> MNIST::classes() {
  return {"0 - zero", "1 - one", "2 - two",   "3 - three", "4 - four",
          "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine"};
}

std::vector<std::string> FashionMNIST::classes() {
  return {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"};
}

std::vector<std::string> KMNIST::classes() { return {"o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"}; }

}  // namespace cohort::data
