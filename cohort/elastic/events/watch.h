/// Descriptors that one thread waits for, each with what to do when it is ready.
#pragma once

#include <functional>
#include <vector>

namespace cohort::elastic {

struct Watch {
  int fd;
  short events;
  std::function<void()> ready;
};

/// Blocks until one is ready or the time is over (-1: no limit), then calls those that are. An interruption ends the wait.
void wait_for(std::vector<Watch>& watches, int milliseconds);

}  // namespace cohort::elastic
