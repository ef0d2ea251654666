/// True in the middle of a backward pass, as where activation checkpointing computes something again.
#pragma once

#include <torch/csrc/autograd/graph_task.h>

namespace cohort::fsdp {

inline bool is_in_autograd() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace cohort::fsdp
