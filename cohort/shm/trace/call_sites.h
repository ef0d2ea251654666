/// CallSites: converts program addresses to texts that other processes can read, each address once.
///
/// "train_gpt+0x1a2b (main)" has the address for addr2line, then the function if the program has its name.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "cohort/shm/trace/trace_area.h"

namespace cohort::shm {

/// Looks up a return address. Uses the address before it, so that addr2line finds the line of the call.
std::string describe_call_site(const void* return_address);

/// The call sites of one rank. Thread-safe; looking up an address again takes no lock.
class CallSites {
 public:
  explicit CallSites(TraceArea& area) : area_(area) {}
  /// Returns the number of the address's text from 1, 0 for null, kManyCallSites if there is no space left.
  uint8_t index_of(const void* address);

 private:
  /// At most half full, so that a search ends soon.
  static constexpr size_t kEntries = 256;
  struct Entry {
    /// Written with release after `index`. Paired with: index_of.
    std::atomic<const void*> address;
    uint8_t index;
  };

  uint8_t add(const void* address);
  /// Returns the address's entry, or the free entry for it.
  Entry& find(const void* address);

  TraceArea& area_;
  std::array<Entry, kEntries> entries_{};
  std::atomic<bool> is_full_{false};
  std::mutex mutex_;
};

}  // namespace cohort::shm
