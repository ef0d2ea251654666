#include "cohort/parallel/fsdp/tensors/unsharded_storage.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>

#include <utility>

namespace cohort::fsdp {
namespace {

// LibTorch 2.11 can set the error, but not remove it.
template <class Storage>
void forbid_access(Storage& storage, const std::string& message) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(message);
  }
}

template <class Storage>
void allow_access(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) storage.clear_data_ptr_access_error_msg_();
}

}  // namespace

UnshardedStorage::UnshardedStorage(const at::Tensor& tensor, std::string message)
    : storage_(tensor.storage()), message_(std::move(message)), num_bytes_(storage_.nbytes()) {}

void UnshardedStorage::allocate() {
  if (std::exchange(is_there_, true)) return;
  auto& storage = *storage_.unsafeGetStorageImpl();
  const c10::DeviceGuard guard(storage.device());  // allocators use the current one
  auto* allocator = storage.allocator();
  if (!allocator) allocator = at::GetAllocator(storage.device_type());
  auto memory = allocator->allocate(num_bytes_);
  allow_access(storage);
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_nbytes(num_bytes_);
}

void UnshardedStorage::release() {
  if (!std::exchange(is_there_, false)) return;
  auto& storage = *storage_.unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, storage.device()));
  storage.set_nbytes(size_t{0});
  forbid_access(storage, message_);
}

}  // namespace cohort::fsdp
