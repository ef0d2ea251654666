#include "cohort/files/tensors/sources/stored_source.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/files/tensors/dcp/tensor_bytes.h"
#include "cohort/files/tensors/elements/plain_json.h"

namespace cohort::files {
namespace {

std::string format_of(const std::string& path, const StoredCheckpoint& checkpoint) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return "safetensors";
  const bool is_dcp = std::any_of(checkpoint.files.begin(), checkpoint.files.end(),
                                  [](const std::string& file) { return file.ends_with(".distcp"); });
  return is_dcp ? "torch.distributed.checkpoint" : "sharded safetensors";
}

class StoredSource final : public TensorSource {
 public:
  StoredSource(const std::string& path, StoredCheckpoint checkpoint)
      : TensorSource(path, format_of(path, checkpoint)), checkpoint_(std::move(checkpoint)), reader_(checkpoint_) {}

  base::Result<void> fill() {
    for (const auto& [name, tensor] : checkpoint_.tensors) {
      contents_.tensors.push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
    }
    for (const auto& [name, json] : checkpoint_.values) {
      auto value = plain_value(json);
      if (!value) return value.error();
      contents_.values.push_back({.name = name, .value = std::move(*value)});
    }
    for (const auto& [name, reason] : checkpoint_.unreadable) {
      contents_.values.push_back({.name = name, .value = base::PickleValue::of_text("cannot be read: " + reason)});
    }
    contents_.metadata = checkpoint_.metadata;
    // In the order of the files.
    std::stable_sort(contents_.tensors.begin(), contents_.tensors.end(),
                     [&](const TensorInfo& a, const TensorInfo& b) { return place_of(a.name) < place_of(b.name); });
    return {};
  }

  base::Result<void> read(size_t tensor, uint64_t first_byte, std::span<char> to) const override {
    const std::string& name = tensors()[tensor].name;
    const std::lock_guard lock(mutex_);
    return read_tensor_bytes(reader_, name, checkpoint_.tensors.at(name), first_byte, to);
  }

 private:
  // Returns the place; for an empty tensor, the last one.
  std::pair<size_t, uint64_t> place_of(const std::string& name) const {
    const auto& chunks = checkpoint_.tensors.at(name).chunks;
    return chunks.empty() ? std::pair(checkpoint_.files.size(), uint64_t{0})
                          : std::pair(chunks[0].file, chunks[0].offset);
  }

  const StoredCheckpoint checkpoint_;
  mutable std::mutex mutex_;
  mutable CheckpointReader reader_;
};

}  // namespace

base::Result<std::unique_ptr<TensorSource>> open_stored_source(const std::string& path) {
  auto checkpoint = open_stored_checkpoint(path);
  if (!checkpoint) return checkpoint.error();
  auto source = std::make_unique<StoredSource>(path, std::move(*checkpoint));
  if (auto filled = source->fill(); !filled) return filled.error();
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace cohort::files
