#include "cohort/rendezvous/rounds/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace cohort::rendezvous {

EventQueue::EventQueue() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void EventQueue::push(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  const uint64_t one = 1;
  [[maybe_unused]] const auto size = write(fd_.get(), &one, sizeof(one));
}

std::optional<Event> EventQueue::pop() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return std::nullopt;
  auto event = std::move(events_.front());
  events_.pop_front();
  uint64_t count = 0;
  if (events_.empty()) [[maybe_unused]]
    const auto size = read(fd_.get(), &count, sizeof(count));
  return event;
}

}  // namespace cohort::rendezvous
