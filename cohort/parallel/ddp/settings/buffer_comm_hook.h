/// A hook that synchronises a module's buffers in place of the broadcast from rank 0 (_register_buffer_comm_hook of
/// torch/nn/parallel/distributed.py).
///
///     auto average = [](const cohort::Group& group, const cohort::ddp::NamedBuffers& buffers) {
///       for (const auto& [name, buffer] : buffers) cohort::all_reduce(buffer, {.op = cohort::ReduceOp::AVG, .group = group});
///       return std::vector<cohort::ddp::CommHookFuture>();
///     };
///     ddp->register_buffer_comm_hook(cohort::default_group(), average);
///
/// It is called with its state and all buffers that DDP looks after, on every rank, in the first forward pass, and in each that
/// follows an exchange of gradients. The futures that it gives are waited for at the end of that step's backward pass.
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
