/// EventQueue: passes events from the rendezvous' threads to its user, who polls a descriptor. Private to this folder.
#pragma once

#include <deque>
#include <mutex>
#include <optional>

#include "cohort/base/file/file.h"
#include "cohort/rendezvous/rounds/round.h"

namespace cohort::rendezvous {

class EventQueue {
 public:
  EventQueue();

  /// Readable while there is an event.
  int fd() const { return fd_.get(); }
  void push(Event event);
  std::optional<Event> pop();

 private:
  const base::Fd fd_;
  std::mutex mutex_;
  std::deque<Event> events_;
};

}  // namespace cohort::rendezvous
