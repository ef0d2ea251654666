/// Gloo's options, with listening addresses that we choose and check.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>

namespace cohort::comm {

/// As ProcessGroupGloo::Options::create_default, but with the addresses of gloo_addresses() (see network.h).
/// Throws c10::ValueError for an interface or address family that this host cannot serve.
c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> make_gloo_options(std::chrono::milliseconds timeout);

}  // namespace cohort::comm
