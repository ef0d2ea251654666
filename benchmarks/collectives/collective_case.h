/// What `cohort-bench collectives` measures: cases, their names and their buffers. Pure, and without LibTorch, so that the MPI
/// rank shares it.
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
/// Where tensors live: each rank's own memory; memory that all ranks share, by shm_empty or by the shared allocator.
enum class Memory { kPrivate, kShared, kAllocator };

/// "all_gather_single", "send_recv": the public function's name.
const char* name_of(Op op);
const char* name_of(DType dtype);
std::optional<Op> parse_op(std::string_view name);
std::optional<DType> parse_dtype(std::string_view name);
bool is_reduction(Op op);
size_t size_of(DType dtype);

/// "4B", "64MiB": the largest unit that leaves no fraction.
std::string format_size(size_t num_bytes);
/// "4", "4B", "64KiB", "64K", "1MiB", "2GiB"; nothing for anything else, or for 0.
std::optional<size_t> parse_size(std::string_view text);

struct CollectiveCase {
  Op op = Op::kAllReduce;
  DType dtype = DType::kFloat32;
  /// Of the larger of a rank's two tensors: all_gather_single's output, reduce_scatter_single's input. 0: a barrier.
  size_t num_bytes = 0;
  int num_ranks = 2;
  Memory memory = Memory::kPrivate;

  size_t num_elements() const { return num_bytes / bench::size_of(dtype); }
  bool operator==(const CollectiveCase&) const = default;
};

/// "shm"
const char* name_of(Memory memory);
/// "all_reduce/float32/64MiB/ranks=2", "/memory=shm" or "/memory=allocator" at the end; "barrier/ranks=2".
std::string case_name(const CollectiveCase& what);
/// The reverse; nothing for what is not such a name.
std::optional<CollectiveCase> parse_case(std::string_view name);

/// The buffers that a rank's calls take turns with.
struct BufferPlan {
  size_t num_buffers = 1;
  size_t input_bytes = 0;
  /// 0 for operations in place.
  size_t output_bytes = 0;
};
/// From 1 MiB on, calls come back to a buffer only when `fresh_bytes` others lie between, so that no cache remembers it.
/// Smaller tensors stay where they are: in the cache.
BufferPlan plan_buffers(const CollectiveCase& what, size_t fresh_bytes);
inline constexpr size_t kSmallestFresh = size_t{1} << 20;
/// Four times this machine's last cache, 256 MiB at most.
size_t default_fresh_bytes();

/// What the user asked for; empty: the question's own choice.
struct CaseFilter {
  std::vector<Op> ops;
  std::vector<size_t> sizes;
  std::vector<DType> dtypes;
  std::vector<int> ranks;
};
/// Throws std::runtime_error, with a suggestion, for words that are none.
CaseFilter parse_filter(const std::vector<std::string>& ops, const std::vector<std::string>& sizes,
                        const std::vector<std::string>& dtypes, const std::vector<std::string>& ranks);

/// Cases in private memory, by number of ranks, dtype and operation. bfloat16 is for reductions, which alone look at it.
std::vector<CollectiveCase> list_cases(const CaseFilter& filter, bool is_quick);

}  // namespace cohort::bench
