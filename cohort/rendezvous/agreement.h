/// Agreement: what all nodes of a rendezvous must have been started with alike, and torchrun's agents, which cannot join.
/// Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/rendezvous/journal.h"
#include "cohort/rendezvous/settings.h"

namespace cohort::rendezvous {

/// What the first node writes for the others.
std::string settings_text(const Settings& settings, const std::string& host);

/// Compares this node's settings with the first node's. Returns warnings about what may differ; errors name both values. Pure.
base::Result<std::vector<std::string>> compare_settings(const std::string& own, const std::string& first);

/// Marks the store as ours where torchrun's agents look first, so that they stop with an error instead of waiting. Error: one of
/// them has been here.
base::Result<void> keep_torchrun_out(store::Store& store, const Settings& settings, const std::string& place);

}  // namespace cohort::rendezvous
