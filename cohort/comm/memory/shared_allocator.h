/// A caching allocator for a process's CPU tensors, whose memory the other ranks of its host can map.
///
/// LibTorch asks the system for the memory of every large tensor, and the system creates each page when it is first written,
/// which takes longer than most operations on it. With this allocator, blocks of 64 KiB and more come from one reserved mapping
/// and keep their pages when they are freed (smaller blocks still come from malloc). Collectives of backend "shm" then read and
/// write the tensors in place, without copies through a staging area, if every rank of the group has the allocator and the
/// tensors come from it on every rank. Other tensors (older ones, from_blob, small ones) work as before.
///
/// Install it early: in the first line of main, with InitOptions::shared_allocator, with `cohort run --allocator=shared`, or with
/// COHORT_SHARED_ALLOCATOR=1, which init_process_group reads. Groups made before it do not become faster.
///
/// - **Memory.** Free blocks keep their pages: used and free blocks together have at most 1.25 times the largest use so far, plus
///   32 MiB. A process's RSS includes peers' pages that it has touched: compare PSS.
/// - **fork.** A child sees its parent's tensors and has its writes for itself. In pages that it has not written it also sees
///   the parent's writes after the fork. A child shares no memory with others until it installs the allocator itself, which
///   init_process_group does if the parent had it.
/// - **Failures.** A rank that was stopped in a failed operation may still write to the operation's tensors, so their memory is
///   never reused. Go on with new tensors.
/// - **Core dumps** do not contain the tensors.
/// - **Security.** Processes of the same user can map the memory, as they can read each other's (ptrace). No one else can.
#pragma once

#include <cstddef>
#include <optional>

#include "cohort/export.h"

namespace cohort::comm {

struct SharedAllocatorOptions {
  /// Address space that is reserved, once. If absent, as much as the host has memory, at most 256 GiB. Tensors that find no room
  /// there come from malloc.
  std::optional<size_t> reserved_bytes = {};
  /// Smaller tensors come from malloc, which recycles blocks of that size itself.
  size_t least_bytes = 64 << 10;
};

/// Makes it LibTorch's allocator for CPU tensors from now on. Does nothing if it is already. Thread-safe.
/// Throws c10::Error where limits forbid to reserve the memory (ulimit -v, ulimit -f, a seccomp profile), and where another
/// library has set an allocator of a higher priority.
COHORT_API void use_shared_allocator(const SharedAllocatorOptions& options = {});

/// Whether new CPU tensors of this process come from it: false in a forked child, and if another library has set its own since.
COHORT_API bool has_shared_allocator();

/// Returns the pages of free blocks to the system, as torch.cuda.empty_cache() does. Thread-safety: any thread.
COHORT_API void empty_shared_allocator_cache();

/// Statistics of this process, in bytes; all 0 without the allocator.
struct SharedAllocatorStats {
  size_t reserved_bytes = 0;     ///< address space
  size_t used_bytes = 0;         ///< blocks in use
  size_t peak_used_bytes = 0;    ///< the greatest used_bytes so far
  size_t cached_bytes = 0;       ///< pages in free blocks
  size_t quarantined_bytes = 0;  ///< tensors of failed operations
  size_t num_recycled = 0;       ///< blocks that reused pages
  size_t num_fresh = 0;          ///< blocks with new pages
  size_t num_refused = 0;        ///< tensors that did not fit
};

COHORT_API SharedAllocatorStats shared_allocator_stats();

}  // namespace cohort::comm

// Old names, until the next release.
namespace cohort {
using SharedAllocatorOptions [[deprecated("use cohort::comm::SharedAllocatorOptions")]] = comm::SharedAllocatorOptions;
using comm::empty_shared_allocator_cache;
using comm::has_shared_allocator;
using comm::use_shared_allocator;
using SharedAllocatorStats [[deprecated("use cohort::comm::SharedAllocatorStats")]] = comm::SharedAllocatorStats;
using comm::shared_allocator_stats;
}  // namespace cohort
