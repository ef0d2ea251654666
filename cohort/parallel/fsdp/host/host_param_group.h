/// HostParamGroup: a group whose ranks share memory. The full parameters exist once, in memory that all ranks map. Modules read
/// them in place, and a shard is a part of the same bytes, so nothing is ever gathered. This needs synchronization: Sharding
/// makes the ranks meet at the end of backward, before an optimizer may write what another rank's backward still reads, and
/// before the next forward, which also ensures that every rank's optimizer step is done.
///
/// Other ranks read gradients where autograd has put them, if the ranks share that memory (comm/memory/shared_allocator.h), else
/// from a copy. A rank posts a chunk of gradients when it is complete, continues its backward pass, and sums its own slices of a
/// chunk as soon as all ranks have posted it. Sums are made in rank order: their bits do not depend on who came first.
///
/// If modules compute in another dtype than optimizers (MixedPrecisionPolicy), a copy of the full parameters in that dtype exists
/// once, too. Modules read the copy, and each rank writes its own part of it.
///
/// If other hosts have the same shards (HSDP), a rank then sums its slices with its peers there: flat, chunk by chunk, at the end
/// of backward, in the order of chunks, which is the same on all hosts.
///
/// Modules cannot write the parameters, since other ranks read them: a write ends in SIGSEGV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/fsdp/groups/param_group.h"
#include "cohort/parallel/fsdp/host/host_layout.h"
#include "cohort/parallel/fsdp/host/progress_table.h"
#include "cohort/parallel/fsdp/host/write_guard.h"
#include "cohort/parallel/module/gradient_hooks.h"
#include "cohort/shm/memory/common_memory.h"

namespace cohort::fsdp {

class HostParamGroup final : public ParamGroup {
 public:
  /// Collective. `replica_group`: the ranks of other hosts that have the same shards, or null. Each rank's shards get its own
  /// values of `parameters`, which must be dense, contiguous and on the CPU, or on the meta device, which gives zeros. Throws
  /// c10::ValueError if the memory cannot be allocated.
  HostParamGroup(const std::vector<NamedParameter>& parameters, const Group& group, const Group& replica_group = {},
                 const MixedPrecisionPolicy& policy = {});
  /// Waits briefly for ranks that still read gradients of this one.
  ~HostParamGroup() override;

  void refresh() override;
  void before_forward() override;
  void poll() override;
  void end_backward() override;
  void reduce_rest() override;
  void forget_gradients() override;
  void reset() override;
  uint64_t num_passes() const override { return num_passes_; }
  void set_num_passes(uint64_t count) override { num_passes_ = count; }
  int64_t number() const override { return number_; }
  GroupMemory memory() const override;
  void write(const Writer* write) override;
  Group meeting_group() const override { return world_size_ > 1 ? group_ : Group(); }

 private:
  struct Chunk {
    std::vector<size_t> members;
    size_t num_pending = 0;
    bool is_posted = false;
    bool is_reduced = false;
    /// Gradients that others may still read.
    std::vector<at::Tensor> in_flight;
    size_t num_bytes_in_flight = 0;
  };
  struct Item {
    Slice slice;
    at::Tensor copy;  ///< of the shard, in the dtype in which modules compute; undefined if that is the same
    c10::ScalarType grad_dtype = at::kFloat;  ///< of sums
    at::Tensor accumulated;                   ///< gradients of passes without a sum, if of that dtype
    size_t chunk = 0;
    bool has_arrived = false;
    bool has_new_grad = false;  ///< hooks have not been called for it
    bool was_staged = false;    ///< its part of the staging area has its pages for good
    bool requires_grad = false;
    parallel::GradientHook hook;
    at::Tensor sum;  ///< of this host, until the replicas are summed
  };

  void share(size_t index, c10::ScalarType dtype);
  void follow_requires_grad(size_t index);
  void check_is_in_pass(size_t index) const;
  void on_gradient(size_t index);
  void post(size_t chunk);
  at::Tensor take_gradient(size_t index);
  GradientPlace put(size_t index, Chunk& chunk);
  void reduce(size_t chunk);
  void note_sum(size_t index, at::Tensor sum);
  void reduce_over_replicas();
  void give(size_t index, at::Tensor sum);
  void call_gradient_hooks();
  double divide_factor() const;
  const std::byte* address(int peer, size_t index, GradientPlace place) const;
  void release_read();
  void bound_memory();
  void begin_pass();
  uint64_t pass() const { return num_passes_ + 1; }

  const Group group_;
  const Group replica_group_;
  const int rank_;
  const int world_size_;
  const int64_t number_;
  Layout layout_;       ///< of parameters as optimizers see them
  Layout read_layout_;  ///< of parameters as modules see them
  Layout grad_layout_;
  shm::CommonMemory memory_;
  shm::CommonMemory read_memory_;  ///< the same, unless modules compute in another dtype
  shm::CommonMemory staging_;
  std::vector<shm::SharedMemoryPtr> arenas_;
  std::unique_ptr<WriteGuard> guard_;
  std::unique_ptr<ProgressTable> progress_;
  std::vector<Item> items_;
  std::vector<Chunk> chunks_;
  size_t window_bytes_ = 0;
  size_t num_bytes_in_flight_ = 0;
  size_t num_unfinished_ = 0;  ///< posted chunks that are not reduced, or that not all ranks have read
  uint64_t num_passes_ = 0;
};

}  // namespace cohort::fsdp
