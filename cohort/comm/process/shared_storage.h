/// Storages in shared memory, and the memory block and descriptor of a storage.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::comm {

/// A memfd that this process has mapped, with the descriptor with which others map it. One per file and process. Lives as long as
/// one of its storages. Thread-safe.
class SharedBlock : public std::enable_shared_from_this<SharedBlock> {
 public:
  static base::Result<std::shared_ptr<SharedBlock>> create(size_t num_bytes);
  /// Fails unless `fd` is a memfd of exactly this size, a multiple of the page size, that cannot be resized.
  static base::Result<std::shared_ptr<SharedBlock>> open(base::Fd fd, size_t num_bytes);
  ~SharedBlock();

  const base::Fd& fd() const { return fd_; }
  std::byte* data() const { return memory_->data(); }
  size_t size() const { return memory_->size(); }

  /// Returns the storage of these bytes: this process's, or a new one. Requires: offset + num_bytes <= size(). Not resizable.
  c10::Storage storage_at(size_t offset, size_t num_bytes);
  /// Copies the storage's bytes to `offset` and makes them the storage's memory.
  void take_over(const c10::Storage& storage, size_t offset);

 private:
  using Place = std::pair<size_t, size_t>;
  struct Owner;

  SharedBlock(shm::SharedMemoryPtr memory, base::Fd fd);
  c10::DataPtr make_data_ptr(const Place& place);
  static void release(void* owner);
  friend struct SharedStorage find_shared(const c10::Storage& storage);

  shm::SharedMemoryPtr memory_;
  base::Fd fd_;
  std::mutex mutex_;
  std::map<Place, c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
};

/// The place of a storage's memory. If `block` is null, it is not shared.
struct SharedStorage {
  std::shared_ptr<SharedBlock> block;
  size_t offset = 0;
};
SharedStorage find_shared(const c10::Storage& storage);

/// Whether Tensor::share_memory_() or Python has shared the storage, with a file that can shrink while others read it.
bool is_libtorch_shared(const c10::Storage& storage);

/// Moves the storages that are not shared yet to one new block. Does not move empty storages. Throws c10::Error.
void move_to_shared_memory(const std::vector<c10::Storage>& storages);

/// Throws c10::ValueError unless `tensor` is a dense CPU tensor with a storage. `who`: "share_memory: parameter \"weight\"".
void check_shareable(const std::string& who, const at::Tensor& tensor);

}  // namespace cohort::comm
