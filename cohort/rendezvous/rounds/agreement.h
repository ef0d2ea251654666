/// Agreement: checks that all nodes of a rendezvous were started with the same settings, and keeps out torchrun's agents, which
/// cannot join. Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/rendezvous/environment/settings.h"
#include "cohort/rendezvous/rounds/journal.h"

namespace cohort::rendezvous {

/// Returns the settings as the first node writes them for the others.
std::string settings_text(const Settings& settings, const std::string& host);

/// Compares this node's settings with the first node's. Returns warnings about settings that may differ. Errors name both values.
/// Pure.
base::Result<std::vector<std::string>> compare_settings(const std::string& own, const std::string& first);

/// Marks the store as Cohort's under the keys that torchrun's agents read first, so that they stop with an error instead of
/// waiting. Returns an error if one of them has used the store.
base::Result<void> keep_torchrun_out(store::Store& store, const Settings& settings, const std::string& place);

}  // namespace cohort::rendezvous
