/// The table of sharding rules, and the kernels that LibTorch's dispatcher calls for tensors with our key.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/dtensor/dispatch/rule.h"
#include "cohort/export.h"

namespace cohort::dtensor {

/// Fills the table with the library's own rules when it is first needed.
using AddRules = void (*)();
/// Prepares the process once, at the first DTensor: checks the key, adds the rules, and registers kernels: one for each operation
/// with a rule, and an error with the name for all others. Throws c10::NotImplementedError, at each call, if the key is in use.
void install(AddRules add_rules);

/// Sets the rule of operation `name`, such as "aten::mm" or "aten::add.Tensor"; a second rule replaces the first.
/// Throws c10::ValueError for an operation that LibTorch does not know. Not while another thread uses DTensors.
void set_rule(const std::string& name, Rule rule);
/// Adds a rule of the library; ignores an operation that this release of LibTorch does not have.
void add_rule(const std::string& name, const Rule& rule);
/// Adds a rule for the named operation and, if it exists, its in-place form, "aten::add_.Tensor".
void add_rule_and_in_place(const std::string& name, const Rule& rule);
/// Returns the operations that were ignored; with the newest release none.
COHORT_TEST_API std::vector<std::string> missing_operations();
bool has_rule(const std::string& name);

}  // namespace cohort::dtensor
