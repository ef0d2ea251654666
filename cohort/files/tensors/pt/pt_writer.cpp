#include "cohort/files/tensors/pt/pt_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "cohort/base/pickle/pickle_writer.h"
#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/pt/zip_layout.h"

namespace cohort::files {
namespace {

using base::Error;
using base::PickleValue;
using base::Result;

// Large enough that a system call costs little in comparison, small enough to stay in the cache between the checksum and the
// write.
constexpr uint64_t kChunkBytes = 1 << 20;

struct Chunk {
  size_t storage;
  uint64_t first;
  uint64_t size;
  uint32_t crc = 0;
};

PickleValue size_tuple(const std::vector<int64_t>& sizes) {
  std::vector<PickleValue> items;
  for (const int64_t size : sizes) items.push_back(PickleValue::of_int(size));
  return PickleValue::tuple(std::move(items));
}

std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;) strides[dim - 1] = strides[dim] * std::max<int64_t>(shape[dim], 1);
  return strides;
}

class PtWriter {
 public:
  PtWriter(base::AtomicFile* file, const std::vector<StorageBytes>& storages) : file_(*file), storages_(storages) {}

  Result<void> write(const std::string& path, const std::string& pickle, int num_threads) {
    const std::string stem = std::filesystem::path(path).stem().string();
    folder_ = (stem.empty() ? "archive" : stem) + "/";
    add_text("data.pkl", pickle);
    add_text(".format_version", "1");
    add_text(".storage_alignment", "64");
    add_text("byteorder", "little");
    for (size_t i = 0; i < storages_.size(); ++i) {
      offsets_.push_back(layout_.add(folder_ + "data/" + std::to_string(i), storages_[i].num_bytes()));
    }
    add_text("version", "3\n");
    if (auto done = file_.reserve(layout_.file_size() + kRestBytes); !done) return done;
    if (auto done = write_storages(num_threads); !done) return done;
    add_serialization_id();
    if (auto done = file_.truncate(layout_.file_size()); !done) return done;
    for (const auto& [offset, bytes] : texts_) {
      if (auto done = file_.write_at(offset, bytes); !done) return done;
    }
    for (const ZipLayout::Piece& piece : layout_.pieces()) {
      if (auto done = file_.write_at(piece.offset, piece.bytes); !done) return done;
    }
    return {};
  }

 private:
  // The size that the last record, which depends on the others, may need.
  static constexpr uint64_t kRestBytes = 4096;
  static constexpr size_t kNumTextsBefore = 4;

  void add_text(const std::string& name, std::string text) {
    const uint64_t offset = layout_.add(folder_ + name, text.size());
    layout_.set_crc(num_records_before(), crc32(text));
    texts_.emplace_back(offset, std::move(text));
  }

  size_t num_records_before() const { return texts_.size() + offsets_.size(); }

  // Adds 40 digits that differ if the contents do.
  void add_serialization_id() {
    uint32_t all = 0;
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < num_records_before(); ++i) {
      const uint32_t crc = layout_.crc(i);
      all = crc32({reinterpret_cast<const char*>(&crc), sizeof(crc)}, all);
      hash = (hash ^ crc) * 0x100000001b3;
    }
    add_text(".data/serialization_id", fmt::format("{:020d}{:020d}", hash, all));
  }

  std::vector<Chunk> chunks() const {
    std::vector<Chunk> result;
    for (size_t i = 0; i < storages_.size(); ++i) {
      for (uint64_t first = 0; first < storages_[i].num_bytes(); first += kChunkBytes) {
        result.push_back({i, first, std::min(kChunkBytes, storages_[i].num_bytes() - first)});
      }
    }
    return result;
  }

  Result<void> write_chunk(Chunk* chunk, std::string* room) {
    const StorageBytes& storage = storages_[chunk->storage];
    std::string_view bytes;
    if (storage.read) {
      room->resize(chunk->size);
      if (auto done = storage.read(chunk->first, *room); !done) return done;
      bytes = *room;
    } else {
      bytes = storage.bytes.substr(chunk->first, chunk->size);
    }
    chunk->crc = crc32(bytes);
    return file_.write_at(offsets_[chunk->storage] + chunk->first, bytes);
  }

  Result<void> write_storages(int num_threads) {
    std::vector<Chunk> all = chunks();
    std::atomic<size_t> next = 0;
    std::mutex mutex;
    std::optional<Error> failure;
    const auto work = [&] {
      std::string room;
      for (size_t i = next++; i < all.size(); i = next++) {
        auto done = write_chunk(&all[i], &room);
        if (done) continue;
        next = all.size();
        const std::lock_guard lock(mutex);
        if (!failure) failure = done.error();
      }
    };
    std::vector<std::jthread> helpers;
    const auto num_helpers = std::min<size_t>(static_cast<size_t>(std::max(num_threads, 1)), all.size() / 4 + 1) - 1;
    for (size_t i = 0; i < num_helpers; ++i) helpers.emplace_back(work);
    work();
    helpers.clear();
    if (failure) return *failure;
    std::vector<uint32_t> crcs(storages_.size(), 0);
    for (const Chunk& chunk : all) crcs[chunk.storage] = join_crc32(crcs[chunk.storage], chunk.crc, chunk.size);
    for (size_t i = 0; i < crcs.size(); ++i) layout_.set_crc(kNumTextsBefore + i, crcs[i]);
    return {};
  }

  base::AtomicFile& file_;
  const std::vector<StorageBytes>& storages_;
  std::string folder_;
  ZipLayout layout_;
  std::vector<uint64_t> offsets_;
  std::vector<std::pair<uint64_t, std::string>> texts_;
};

}  // namespace

PickleValue pt_ordered_dict(std::vector<base::PickleEntry> entries, PickleValue state) {
  return PickleValue::object({"collections", "OrderedDict"},
                             {.entries = std::move(entries), .state = std::move(state)});
}

PickleValue pt_tensor(const PtTensorParts& parts) {
  const DtypeInfo& info = info_of(parts.dtype);
  int64_t count = parts.storage_elements;
  if (count == 0) {
    count = 1;
    for (const int64_t size : parts.shape) count *= size;
  }
  const bool is_untyped = info.storage_class.empty();
  const PickleValue id = PickleValue::persistent(
      PickleValue::tuple({PickleValue::of_text("storage"),
                          is_untyped ? PickleValue::of_name("torch.storage", "UntypedStorage")
                                     : PickleValue::of_name("torch", std::string(info.storage_class)),
                          PickleValue::of_text(parts.key), PickleValue::of_text(parts.device),
                          PickleValue::of_int(is_untyped ? count * info.size : count)}));
  std::vector<PickleValue> arguments{id,
                                     PickleValue::of_int(parts.offset),
                                     size_tuple(parts.shape),
                                     size_tuple(parts.strides.empty() ? row_major(parts.shape) : parts.strides),
                                     PickleValue::of_bool(parts.requires_grad),
                                     pt_ordered_dict({})};
  if (is_untyped) arguments.push_back(PickleValue::of_name("torch", std::string(info.torch_name)));
  std::vector<base::PickleEntry> metadata;
  if (parts.is_conjugate) metadata.push_back({PickleValue::of_text("conj"), PickleValue::of_bool(true)});
  if (parts.is_negative) metadata.push_back({PickleValue::of_text("neg"), PickleValue::of_bool(true)});
  if (!metadata.empty()) arguments.push_back(PickleValue::dict(std::move(metadata)));
  PickleValue tensor = PickleValue::object({"torch._utils", is_untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2"},
                                           std::move(arguments));
  if (!parts.is_parameter) return tensor;
  return PickleValue::object({"torch._utils", "_rebuild_parameter"},
                             {tensor, PickleValue::of_bool(parts.requires_grad), pt_ordered_dict({})});
}

Result<void> write_pt_file(const std::string& path, const PickleValue& root, const std::vector<StorageBytes>& storages,
                           const PtWriteOptions& options) {
  const auto fail = [&](const Error& cause) {
    return Error(fmt::format("cannot write \"{}\"", path)).caused_by(cause);
  };
  auto pickle = base::write_pickle(root, 2);
  if (!pickle) return fail(pickle.error());
  auto file = base::AtomicFile::create(path, options.sync);
  if (!file) return fail(file.error());
  auto done = PtWriter(&*file, storages).write(path, *pickle, options.num_threads);
  if (done) done = file->commit();
  return done ? done : fail(done.error());
}

}  // namespace cohort::files
