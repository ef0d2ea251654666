/// What is noted down about tensors, for as long as they live. Private to this folder.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::checkpoint::detail {

/// Thread-safe.
template <class Note>
class TensorNotes {
 public:
  void set(const at::Tensor& tensor, Note note) {
    std::vector<WeakTensor> expired;  // goes after the lock
    const std::lock_guard lock(mutex_);
    for (auto entry = notes_.begin(); entry != notes_.end();) {
      if (entry->second.tensor.expired()) {
        expired.push_back(std::move(entry->second.tensor));
        entry = notes_.erase(entry);
      } else {
        ++entry;
      }
    }
    const auto entry = notes_.try_emplace(tensor.unsafeGetTensorImpl(), WeakTensor(tensor.getIntrusivePtr())).first;
    entry->second.note = std::move(note);
  }

  void erase(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    notes_.erase(tensor.unsafeGetTensorImpl());
  }

  /// An empty one: there is none.
  Note of(const at::Tensor& tensor) const {
    const std::lock_guard lock(mutex_);
    const auto found = notes_.find(tensor.unsafeGetTensorImpl());
    return found == notes_.end() ? Note() : found->second.note;
  }

 private:
  using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  // As long as one is listed nothing else can have its address.
  struct Entry {
    explicit Entry(WeakTensor noted) : tensor(std::move(noted)) {}
    WeakTensor tensor;
    Note note = {};
  };

  mutable std::mutex mutex_;
  std::unordered_map<const at::TensorImpl*, Entry> notes_;
};

}  // namespace cohort::checkpoint::detail
