#include "cohort/comm/error/exception_text.h"

#include <c10/util/Exception.h>

namespace cohort::comm {

std::string without_mark(const std::string& text) {
  return text.starts_with(kErrorMark) ? text.substr(kErrorMark.size()) : text;
}

std::string text_of(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return without_mark(c10_error ? c10_error->what_without_backtrace() : error.what());
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    const std::string text = text_of(known);
    return text.empty() ? "an exception without a text" : text;
  } catch (...) {
    return "an exception of another kind than std::exception";
  }
}

}  // namespace cohort::comm
