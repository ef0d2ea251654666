/// Notes about tensors, which live as long as the tensors: a destroyed tensor leaves no note to the next tensor at its address,
/// and a note may outlive its maker.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::comm {

/// Thread-safe. Destroys notes without holding the lock.
template <class Note>
class TensorNotes {
 public:
  void set(const at::Tensor& tensor, Note note) {
    change(tensor, [&](Note& noted) { std::swap(noted, note); });
  }

  /// Calls `change` with the tensor's note, or a new one, while holding the lock.
  template <class Change>
  void change(const at::Tensor& tensor, Change change) {
    std::vector<Entry> gone;
    const std::lock_guard lock(mutex_);
    if (notes_.size() >= num_before_sweep_) sweep(gone);
    change(notes_.try_emplace(tensor.unsafeGetTensorImpl(), tensor).first->second.note);
  }

  void erase(const at::Tensor& tensor) {
    typename Notes::node_type gone;
    const std::lock_guard lock(mutex_);
    gone = notes_.extract(tensor.unsafeGetTensorImpl());
  }

  /// Destroys the notes of destroyed tensors, which would otherwise stay until a later note is made.
  void forget_gone() {
    std::vector<Entry> gone;
    const std::lock_guard lock(mutex_);
    sweep(gone);
  }

  /// Returns the tensor's note, or an empty one.
  Note of(const at::Tensor& tensor) const {
    const std::lock_guard lock(mutex_);
    const auto found = notes_.find(tensor.unsafeGetTensorImpl());
    return found == notes_.end() ? Note() : found->second.note;
  }

 private:
  // As long as an entry is listed nothing else can have its address.
  struct Entry {
    explicit Entry(const at::Tensor& noted) : tensor(noted.getIntrusivePtr()) {}
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
    Note note = {};
  };
  using Notes = std::unordered_map<const at::TensorImpl*, Entry>;

  void sweep(std::vector<Entry>& gone) {
    for (auto entry = notes_.begin(); entry != notes_.end();) {
      const bool is_gone = entry->second.tensor.expired();
      if (is_gone) gone.push_back(std::move(entry->second));
      entry = is_gone ? notes_.erase(entry) : std::next(entry);
    }
    num_before_sweep_ = 2 * notes_.size() + kFewNotes;
  }

  static constexpr size_t kFewNotes = 16;
  mutable std::mutex mutex_;
  Notes notes_;
  size_t num_before_sweep_ = kFewNotes;
};

}  // namespace cohort::comm
