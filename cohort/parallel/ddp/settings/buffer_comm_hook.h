/// A hook that synchronizes a module's buffers instead of the broadcast from rank 0 (_register_buffer_comm_hook of
/// torch/nn/parallel/distributed.py).
///
///     auto average = [](const cohort::Group& group, const cohort::ddp::NamedBuffers& buffers) {
///       for (const auto& [name, buffer] : buffers) cohort::all_reduce(buffer, {.op = cohort::ReduceOp::AVG, .group = group});
///       return std::vector<cohort::ddp::CommHookFuture>();
///     };
///     ddp->register_buffer_comm_hook(cohort::default_group(), average);
///
/// DDP calls it with its state and all buffers that DDP synchronizes, on every rank, in the first forward pass and in each
/// forward pass after an exchange of gradients. The end of that step's backward pass waits for the futures that it returns.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

using NamedBuffers = std::vector<std::pair<std::string, at::Tensor>>;
/// A hook with its state bound to it.
using BufferCommHook = std::function<std::vector<CommHookFuture>(const NamedBuffers&)>;

/// When the hook runs: before the module's forward pass, as the broadcast does, or after it.
enum class BufferCommHookLocation : uint8_t { kPreForward, kPostForward };

}  // namespace cohort::ddp
