/// Prepares this process for DTensors; called before the first one is made.
#pragma once

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {

/// Throws c10::NotImplementedError if this process cannot have DTensors.
inline void make_ready() { install(add_all_rules); }

}  // namespace cohort::dtensor
