/// True during a backward pass, for example when activation checkpointing recomputes.
#pragma once

#include <torch/csrc/autograd/graph_task.h>

namespace cohort::fsdp {

inline bool is_in_autograd() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace cohort::fsdp
