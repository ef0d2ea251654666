/// DDP's readable reference: after backward, one bucket after the other is flattened, all-reduced and copied back. It has the
/// same plan, the same arithmetic and the same order of operations as the library's engine, without its states.
#pragma once

#include "cohort/parallel/ddp/settings/options.h"

namespace cohort::ddp {

/// For Options::engine and ReducerOptions::engine in a program that links this.
extern const Engine kInline;

}  // namespace cohort::ddp
