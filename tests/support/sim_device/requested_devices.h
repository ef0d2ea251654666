/// The simulated devices that a program is asked to have: COHORT_TEST_SIM=cuda,late-sides says where LibTorch shall see them
/// and when their work runs, COHORT_TEST_SIM=real that the machine's own are wanted. main() of the tests puts
/// --sim=cuda,late-sides there, so that ranks that are processes have it too.
#pragma once

#include "tests/support/sim_device/schedule.h"
#include "tests/support/sim_device/sim_device.h"

namespace cohort::sim {

/// kMaxDevices of them; "sim,eager" where nothing is said. The second call of a process has no effect.
/// Throws c10::ValueError for words that mean nothing.
void install_requested_devices();

Schedule requested_schedule();

}  // namespace cohort::sim
