/// Closes files in destructors, which cannot throw.
#pragma once

#include <exception>

#include "cohort/base/log/log.h"
#include "cohort/comm/error/exception_text.h"

namespace cohort::train::detail {

/// Turns an exception from `close` into a warning.
template <typename Close>
void close_quietly(const Close& close) {
  try {
    close();
  } catch (const std::exception& error) {
    base::log_warning(comm::text_of(error));
  }
}

}  // namespace cohort::train::detail
