#include "cohort/comm/backend/host_program.h"

#include <atomic>

namespace cohort::comm {
namespace {

std::atomic<Interruption> current = nullptr;
HostLock host_lock{[]() -> void* { return nullptr; }, [](void*) {}};

}  // namespace

void set_interruption(Interruption interruption) { current = interruption; }

std::exception_ptr find_interruption() {
  const auto interruption = current.load();
  return interruption ? interruption() : nullptr;
}

void throw_interruption() {
  if (const auto exception = find_interruption()) std::rethrow_exception(exception);
}

void set_host_lock(const HostLock& lock) { host_lock = lock; }

HostUnlocked::HostUnlocked() : state_(host_lock.release()) {}

HostUnlocked::~HostUnlocked() {
  if (state_) host_lock.acquire(state_);
}

}  // namespace cohort::comm
