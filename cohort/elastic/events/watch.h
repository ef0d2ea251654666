/// Descriptors that one thread waits for, each with a function to call when it is ready.
#pragma once

#include <functional>
#include <vector>

namespace cohort::elastic {

struct Watch {
  int fd;
  short events;
  std::function<void()> ready;
};

/// Blocks until a descriptor is ready or the time is over (-1 means no limit), then calls the functions of those that are ready.
/// An interruption ends the wait.
void wait_for(std::vector<Watch>& watches, int milliseconds);

}  // namespace cohort::elastic
