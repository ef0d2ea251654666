/// One allocator for the CPU tensors of a process: memory that the other ranks of its host can map, and that is recycled.
///
/// LibTorch asks the system for the memory of every large tensor, and the system makes each page anew when it is first written,
/// which costs more than most operations on it. With this allocator blocks of 64 KiB and more come from one reserved mapping
/// and keep their pages when they are let go (smaller ones stay with malloc). Collectives of backend "shm" then work where
/// tensors lie, without copies through a staging area: where every rank of the group has the allocator and tensors lie in it
/// on every rank. What lies elsewhere (tensors from before it, from_blob, small ones) works as before.
///
/// Install it early: in the first line of main, by InitOptions::shared_allocator, by `cohort run --allocator=shared`, or with
/// COHORT_SHARED_ALLOCATOR=1, which init_process_group reads. Groups from before it are not faster.
///
/// - **Memory.** Free blocks keep their pages: with those in use at most 1.25 times the most that was ever in use, and 32 MiB.
///   Peers' pages count in a process's RSS once it has touched them: compare PSS.
/// - **fork.** A child sees its parent's tensors, and its own writes are its own; but on pages that it has not written it also
///   sees what the parent writes after the fork. A child shares no memory with others until it installs the allocator itself,
///   which init_process_group does where the parent had it.
/// - **Failures.** Tensors of an operation that failed may still be written by a rank that was stopped in it: their memory is
///   never used for others. Go on with new tensors.
/// - **Core dumps** do not have the tensors.
/// - **Security.** Processes of the same user can map the memory, as they can read each other's (ptrace). No one else can.
#pragma once

#include <cstddef>

#include "cohort/export.h"

namespace cohort {

struct SharedAllocatorOptions {
  /// Address space that is reserved, once. 0: as much as the host has memory, at most 256 GiB. Tensors that find no room there
  /// come from malloc.
  size_t reserved_bytes = 0;
  /// Smaller tensors come from malloc, which recycles blocks of that size itself.
  size_t least_bytes = 64 << 10;
};

/// Makes it LibTorch's allocator for CPU tensors from now on. Does nothing if it is already. Thread-safe.
/// Throws c10::Error where limits forbid to reserve the memory (ulimit -v, ulimit -f, a seccomp profile), and where another
/// library has set an allocator of a higher priority.
COHORT_API void use_shared_allocator(const SharedAllocatorOptions& options = {});

/// Whether tensors of this process come from it: false again in a forked child, and where another library has set its own since.
COHORT_API bool has_shared_allocator();

/// Gives the pages of free blocks back to the system, as torch.cuda.empty_cache() does. Any thread.
COHORT_API void empty_shared_allocator_cache();

/// In bytes, of this process; all zero without the allocator.
struct SharedAllocatorStats {
  size_t reserved_bytes = 0;     ///< address space
  size_t used_bytes = 0;         ///< blocks that are in use
  size_t peak_used_bytes = 0;    ///< the most of those
  size_t cached_bytes = 0;       ///< pages in free blocks
  size_t quarantined_bytes = 0;  ///< tensors of failed operations
  size_t num_recycled = 0;       ///< blocks that found their pages
  size_t num_fresh = 0;          ///< blocks whose pages had to be made
  size_t num_refused = 0;        ///< tensors for which there was no room
};

COHORT_API SharedAllocatorStats shared_allocator_stats();

}  // namespace cohort
