/// Errors of cohort/pipeline as exceptions.
#pragma once

#include <c10/util/Exception.h>

#include <utility>

#include "cohort/base/result.h"

namespace cohort::pipeline {

[[noreturn]] inline void throw_value_error(const base::Error& error) { C10_THROW_ERROR(ValueError, error.describe()); }

template <class Value>
Value value_of(base::Result<Value> result) {
  if (!result) throw_value_error(result.error());
  return std::move(*result);
}

}  // namespace cohort::pipeline
