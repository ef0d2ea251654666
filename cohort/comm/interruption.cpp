#include "cohort/comm/interruption.h"

#include <atomic>

namespace cohort::comm {
namespace {

std::atomic<Interruption> current = nullptr;

}  // namespace

void set_interruption(Interruption interruption) { current = interruption; }

std::exception_ptr find_interruption() {
  const auto interruption = current.load();
  return interruption ? interruption() : nullptr;
}

void throw_interruption() {
  if (const auto exception = find_interruption()) std::rethrow_exception(exception);
}

}  // namespace cohort::comm
