#include "cohort/models/weight_file.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "cohort/checkpoint/file/scalar_type.h"
#include "cohort/checkpoint/state/module_names.h"
#include "cohort/files/tensors/elements/shown_text.h"
#include "cohort/files/tensors/sources/open_source.h"

namespace cohort::models {
namespace {

using base::Error;
using base::Result;
using files::TensorSource;
using Names = std::unordered_set<std::string>;

// In the order in which timm searches them.
constexpr std::array<const char*, 4> kNests = {"state_dict_ema", "model_ema", "state_dict", "model"};
constexpr size_t kNumEmaNests = 2;
// Tensors may share memory in a file, as tied ones do, but only few do.
constexpr uint64_t kMaxSharing = 16;
constexpr uint64_t kFreeBytes = 1 << 20;

struct NamedIndex {
  std::string name;
  size_t index;  // into TensorSource::tensors()
};

// Removes the prefixes of DDP, torch.compile and AveragedModel.
std::string without_prefix(const std::string& name, const Names& own) {
  if (own.contains(name)) return name;
  std::string clean = checkpoint::detail::without_wrappers(name);
  return clean.starts_with("module.") ? clean.substr(7) : clean;
}

std::vector<NamedIndex> tensors_below(const TensorSource& source, const std::string& prefix, const Names& own) {
  std::vector<NamedIndex> found;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const std::string& name = source.tensors()[i].name;
    if (!name.starts_with(prefix)) continue;
    found.push_back({without_prefix(name.substr(prefix.size()), own), i});
  }
  // The number of models that AveragedModel has averaged is not a weight.
  std::erase_if(found, [&](const NamedIndex& each) { return each.name == "n_averaged" && !own.contains(each.name); });
  return found;
}

int64_t count_own(const std::vector<NamedIndex>& found, const Names& own) {
  return std::count_if(found.begin(), found.end(), [&](const NamedIndex& each) { return own.contains(each.name); });
}

// Returns the key of the dict with the weights, and its entries.
std::pair<std::string, std::vector<NamedIndex>> find_weights(const TensorSource& source, const Names& own,
                                                             bool use_ema) {
  auto all = tensors_below(source, "", own);
  const int64_t num_own = count_own(all, own);
  for (size_t i = use_ema ? 0 : kNumEmaNests; i < kNests.size(); ++i) {
    auto nested = tensors_below(source, std::string(kNests[i]) + ".", own);
    if (!nested.empty() && count_own(nested, own) >= num_own) return {kNests[i], std::move(nested)};
  }
  return {"", std::move(all)};
}

uint64_t bytes_on_disk(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return std::filesystem::file_size(path, error);
  uint64_t sum = 0;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->is_regular_file(error)) sum += entry->file_size(error);
  }
  return sum;
}

// Refuses views that repeat their elements without limit, at the cost of a few bytes in the file.
Result<void> check_sizes(const TensorSource& source, const std::vector<NamedIndex>& found) {
  const uint64_t available = bytes_on_disk(source.path());
  uint64_t sum = 0;
  for (const NamedIndex& each : found) {
    const files::TensorInfo& info = source.tensors()[each.index];
    const auto size = static_cast<uint64_t>(info.num_bytes());
    sum += size;
    if (size <= available && sum <= kMaxSharing * available + kFreeBytes) continue;
    return Error(fmt::format("\"{}\" has {} bytes, but its tensors up to \"{}\" are said to have {}", source.path(),
                             available, files::shortened(info.name), sum))
        .with_hint("save tensor.contiguous() of tensors that repeat their elements");
  }
  return {};
}

Result<at::Tensor> read_tensor(const TensorSource& source, size_t index) {
  const files::TensorInfo& info = source.tensors()[index];
  const auto dtype = checkpoint::scalar_type(info.dtype);
  at::Tensor tensor = at::empty(info.shape, at::TensorOptions().dtype(dtype));
  if (tensor.numel() > 0) {
    const auto done = source.read(index, 0, {static_cast<char*>(tensor.mutable_data_ptr()), tensor.nbytes()});
    if (!done) return done.error();
  }
  // A file may hold any byte, but a bool in memory must be 0 or 1.
  return dtype == at::kBool ? tensor.view(at::kByte).ne(0) : tensor;
}

}  // namespace

Result<WeightFile> read_weight_file(const std::string& path, const Names& own, bool use_ema) {
  const auto opened = files::open_tensor_source(path);
  if (!opened) return opened.error();
  const TensorSource& source = **opened;
  const auto [nested_in, found] = find_weights(source, own, use_ema);
  if (found.empty()) return Error(fmt::format("\"{}\" has no tensors", path));
  if (auto done = check_sizes(source, found); !done) return done.error();
  WeightFile file{.nested_in = nested_in, .weights = checkpoint::StateDict()};
  for (const NamedIndex& each : found) {
    if (file.weights.contains(each.name)) {
      return Error(fmt::format("\"{}\" has two tensors \"{}\", ignoring the prefixes of wrappers", path,
                               files::shortened(each.name)));
    }
    auto tensor = read_tensor(source, each.index);
    if (!tensor) return tensor.error();
    file.weights.insert(each.name, std::move(*tensor));
  }
  return file;
}

}  // namespace cohort::models
