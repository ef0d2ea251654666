/// What must have happened before the first DTensor exists.
#pragma once

#include "cohort/dtensor/dispatch/rule_table.h"
#include "cohort/dtensor/rules/rules.h"

namespace cohort::dtensor {

/// Throws c10::NotImplementedError if DTensors cannot be had in this process.
inline void make_ready() { install(add_all_rules); }

}  // namespace cohort::dtensor
