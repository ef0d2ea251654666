/// Custom collectives of the program, which replace those that fully_shard calls if ranks do not share memory: to use memory that
/// the network knows, or another transport. As AllGather and ReduceScatter of torch/distributed/fsdp/_fully_shard/_fsdp_api.py;
/// functions that are not overridden are the default.
///
/// Called on all ranks in the same order, on an accelerator in a stream for communication.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/fsdp/settings/symm_mem_buffers.h"

namespace cohort::fsdp {

class COHORT_API Comm {
 public:
  virtual ~Comm() = default;
  /// Returns uninitialized one-dimensional memory for one call.
  virtual at::Tensor allocate(int64_t num_elements, const at::TensorOptions& options);
};

class COHORT_API AllGather : public Comm {
 public:
  /// As cohort::all_gather_single. Null: it is already done.
  virtual WorkPtr operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, bool async_op);
};

class COHORT_API ReduceScatter : public Comm {
 public:
  /// As cohort::reduce_scatter_single. Null: it is already done.
  virtual WorkPtr operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, ReduceOp op,
                             bool async_op);
};

/// Allocates memory of the process group, if it has its own, as NCCL does.
COHORT_API at::Tensor allocate_from(const Group& group, int64_t num_elements, const at::TensorOptions& options);

template <class Base>
class ProcessGroupAlloc final : public Base {
 public:
  explicit ProcessGroupAlloc(Group group) : group_(std::move(group)) {}
  at::Tensor allocate(int64_t num_elements, const at::TensorOptions& options) override {
    return allocate_from(group_, num_elements, options);
  }

 private:
  Group group_;
};

/// Uses memory that all ranks of the group know.
template <class Base>
class SymmMemAlloc final : public Base {
 public:
  SymmMemAlloc(const Group& group, c10::Device device) : buffers_(group, device) {}
  at::Tensor allocate(int64_t num_elements, const at::TensorOptions& options) override {
    return buffers_.allocate(num_elements, options);
  }

 private:
  SymmMemBuffers buffers_;
};

}  // namespace cohort::fsdp
