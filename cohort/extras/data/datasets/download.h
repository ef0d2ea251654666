/// download(): gets official datasets from where they are published.
#pragma once

#include <string>

#include "cohort/export.h"

namespace cohort::data {

/// Gets a dataset ("cifar10", "mnist", ...; `cohort-data list` lists them) into the folder `root`, unless it is there: downloads
/// it, compares its published digest, and unpacks it. Datasets of this library call it if `.download = true`.
///
/// Any number of ranks may call it: on one host, with the same `root`, one rank downloads while the others wait. Throws
/// c10::Error, which says what could not be reached, and what to do without a network.
COHORT_API void download(const std::string& name, const std::string& root);

}  // namespace cohort::data
