/// download(): official data sets, from where they are published.
#pragma once

#include <string>

#include "cohort/export.h"

namespace cohort::data {

/// Gets a set ("cifar10", "mnist", ...: `cohort-data list` names them) into the folder `root`, unless it is there: downloaded,
/// compared with its published digest, and unpacked. What the datasets of this library do when `.download = true`.
///
/// Any number of ranks may call it: of those with one `root` on one host, one downloads while the others wait.
/// Throws c10::Error that says what could not be reached, and what to do where there is no network.
COHORT_API void download(const std::string& name, const std::string& root);

}  // namespace cohort::data
