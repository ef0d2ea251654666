/// Schedule: when work in a simulated stream runs. A stream is free to run its work at any time between the moment it was
/// queued and the moment somebody waits for it; a missing wait shows only when it runs late.
#pragma once

#include <chrono>
#include <string>

namespace cohort::sim {

struct Schedule {
  /// Work in the devices' default streams, and in all other streams, begins when somebody waits for it.
  bool default_is_late = false;
  bool sides_are_late = false;
  /// Or: in every other stream, so that a missing wait between two side streams shows as well.
  bool every_other_is_late = false;
  /// At the latest after this time, as a GPU would.
  std::chrono::milliseconds patience{50};
};

/// "eager", "late-default", "late-sides" or "mixed". Throws c10::ValueError for another name.
Schedule schedule_named(const std::string& name);

/// Of all streams, from now on. Thread-safe.
void set_schedule(const Schedule& schedule);
Schedule current_schedule();

}  // namespace cohort::sim
