// The communication hooks of ddp_reference.py.
#pragma once

#include <string>

#include "cohort/parallel/ddp/reducer.h"

namespace cohort::proof {

/// Collective for some. Empty: none.
void register_hook(const std::string& name, ddp::Reducer& reducer);

}  // namespace cohort::proof
