#include "cohort/comm/gloo/gloo_failure.h"

#include <string>

#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/watch/throw_failure.h"

namespace cohort::comm {
namespace {

// [Note: Gloo's words] Gloo throws a gloo::IoException for a timeout and for a broken connection, so the type does not tell them
// apart. Nor does the clock: a connection may break while an operation waits for its turn behind others, and if one operation
// times out, Gloo closes its connections, which ends younger operations at once. Only the words tell:
//     Timed out waiting 1500ms for recv operation to complete
//     Application timeout caused pair closure
//     Connect timeout [...], Read timeout, Write timeout, Wait timeout, wait timeout after 1500ms, Operation timed out!
// No other code searches a text for them.
bool tells_of_timeout(const std::string& text) {
  return text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
}

}  // namespace

Failure gloo_failure(const std::exception& error) {
  auto text = text_of(error);
  const auto kind = tells_of_timeout(text) ? Failure::Kind::kTimeout : Failure::Kind::kEngine;
  return {.kind = kind, .causes = {std::move(text)}};
}

}  // namespace cohort::comm
