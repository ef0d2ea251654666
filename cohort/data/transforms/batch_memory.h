/// BatchMemory: the memory of batches, given out again when nobody has the batch any more. Fresh memory costs more than what is written
/// to it: the kernel has to find and clear each page.
///
/// Thread-safety: any thread may take and free batches.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "cohort/export.h"

namespace cohort::data {

/// Lives as long as the longest-lived of its batches. Keeps the memory of up to 8 that have been freed.
class COHORT_API BatchMemory : public std::enable_shared_from_this<BatchMemory> {
 public:
  static std::shared_ptr<BatchMemory> make();
  /// A contiguous CPU tensor with whatever was in its memory, like at::empty. The memory comes back when the tensor and all that
  /// shares its storage are gone.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype);

 private:
  struct Block {
    c10::DataPtr memory;
    size_t size;
    std::shared_ptr<BatchMemory> owner;  ///< while it is given out
  };
  BatchMemory() = default;
  std::unique_ptr<Block> take(size_t size);
  static void give_back(void* block);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> free_;  ///< the last one was freed last
};

}  // namespace cohort::data
