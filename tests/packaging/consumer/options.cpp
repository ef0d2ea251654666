// Options of which some are named, and others left out: a user's -Wall -Wextra says nothing of it.
#include <cohort/cohort.h>

void use_some_options(const at::Tensor& tensor) {
  const auto group = cohort::new_group({0, 1}, {.group_desc = "pair"});
  cohort::all_reduce(tensor, {.op = cohort::ReduceOp::AVG});
  cohort::all_reduce(tensor, {.group = group});
  cohort::all_reduce(tensor, cohort::ReduceOp::MAX);
  cohort::barrier({.timeout = std::chrono::seconds(5)});
}
