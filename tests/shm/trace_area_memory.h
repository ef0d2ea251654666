/// Zeroed memory for a rank's trace.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include "cohort/shm/trace/trace.h"

namespace cohort::test {

class TraceMemory {
 public:
  TraceMemory() { std::memset(bytes_.get(), 0, shm::Trace::area_bytes()); }
  std::byte* get() const { return bytes_.get(); }

 private:
  struct Delete {
    void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte, Delete> bytes_{
      static_cast<std::byte*>(::operator new (shm::Trace::area_bytes(), std::align_val_t{4096}))};
};

}  // namespace cohort::test
