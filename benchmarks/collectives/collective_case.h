/// The cases of `cohort-bench collectives`, their names and their buffers. Pure, and without LibTorch, so that the MPI rank can
/// use it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::bench {

enum class Op { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kAllToAll, kSendRecv, kBarrier };
inline constexpr Op kAllOps[] = {Op::kAllReduce,     Op::kBroadcast, Op::kReduce,   Op::kAllGather,
                                 Op::kReduceScatter, Op::kAllToAll,  Op::kSendRecv, Op::kBarrier};
enum class DType { kFloat32, kBFloat16 };
/// The memory of tensors: each rank's own; memory that all ranks share, from shm_empty or from the shared allocator.
enum class Memory { kPrivate, kShared, kAllocator };

/// Returns the public function's name: "all_gather_single", "send_recv".
const char* name_of(Op op);
const char* name_of(DType dtype);
std::optional<Op> parse_op(std::string_view name);
std::optional<DType> parse_dtype(std::string_view name);
bool is_reduction(Op op);
size_t size_of(DType dtype);

/// Returns "4B", "64MiB", in the largest unit without a fraction.
std::string format_size(size_t num_bytes);
/// Parses "4", "4B", "64KiB", "64K", "1MiB", "2GiB". Absent for other texts, and for 0.
std::optional<size_t> parse_size(std::string_view text);

struct CollectiveCase {
  Op op = Op::kAllReduce;
  DType dtype = DType::kFloat32;
  /// The size of the larger one of a rank's two tensors: all_gather_single's output, reduce_scatter_single's input. 0 for a
  /// barrier.
  size_t num_bytes = 0;
  int num_ranks = 2;
  Memory memory = Memory::kPrivate;

  size_t num_elements() const { return num_bytes / bench::size_of(dtype); }
  bool operator==(const CollectiveCase&) const = default;
};

/// Returns "private", "shm" or "allocator".
const char* name_of(Memory memory);
/// Returns "all_reduce/float32/64MiB/ranks=2", with "/memory=shm" or "/memory=allocator" at the end; or "barrier/ranks=2".
std::string case_name(const CollectiveCase& what);
/// The inverse of case_name(). Absent for other texts.
std::optional<CollectiveCase> parse_case(std::string_view name);

/// The buffers that a rank's calls use in turn.
struct BufferPlan {
  size_t num_buffers = 1;
  size_t input_bytes = 0;
  /// 0 for in-place operations.
  size_t output_bytes = 0;
};
/// From 1 MiB on, calls reuse a buffer only after `fresh_bytes` of other buffers, so that it is in no cache. Smaller tensors stay
/// in the cache.
BufferPlan plan_buffers(const CollectiveCase& what, size_t fresh_bytes);
inline constexpr size_t kSmallestFresh = size_t{1} << 20;
/// Four times this machine's last-level cache, at most 256 MiB.
size_t default_fresh_bytes();

/// The user's choice. If empty, the question's own choice.
struct CaseFilter {
  std::vector<Op> ops;
  std::vector<size_t> sizes;
  std::vector<DType> dtypes;
  std::vector<int> ranks;
};
/// Throws std::runtime_error, with a suggestion, for unknown words.
CaseFilter parse_filter(const std::vector<std::string>& ops, const std::vector<std::string>& sizes,
                        const std::vector<std::string>& dtypes, const std::vector<std::string>& ranks);

/// Returns cases in private memory, by number of ranks, dtype and operation. Only reductions have bfloat16, as others ignore the
/// dtype.
std::vector<CollectiveCase> list_cases(const CaseFilter& filter, bool is_quick);

}  // namespace cohort::bench
