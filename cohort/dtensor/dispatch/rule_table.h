/// Which rule each operation has, and the kernels that LibTorch's dispatcher calls for tensors of our key.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cohort/dtensor/dispatch/rule.h"
#include "cohort/export.h"

namespace cohort::dtensor {

/// What fills the table when it is first needed: the rules that come with the library.
using AddRules = void (*)();
/// Once per process, at the first DTensor: checks the key, adds the rules, and registers kernels: for operations with a rule, for
/// all others an error that names them. Throws c10::NotImplementedError, at each call, if the key is not free.
void install(AddRules add_rules);

/// Gives operation `name`, such as "aten::mm" or "aten::add.Tensor", a rule; a second one replaces the first.
/// Throws c10::ValueError for an operation that LibTorch does not know. Not while another thread uses DTensors.
void set_rule(const std::string& name, Rule rule);
/// The library's own: an operation that this release of LibTorch lacks is left out.
void add_rule(const std::string& name, const Rule& rule);
/// For the named operation and its in-place form, "aten::add_.Tensor", if there is one.
void add_rule_and_in_place(const std::string& name, const Rule& rule);
/// Those that were left out; none with the newest release.
COHORT_TEST_API std::vector<std::string> missing_operations();
bool has_rule(const std::string& name);

}  // namespace cohort::dtensor
