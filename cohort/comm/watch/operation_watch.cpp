#include "cohort/comm/watch/operation_watch.h"

#include <c10/util/Exception.h>

namespace cohort::comm {
namespace {

using job::Operation;

struct EngineText final : OperationWatch {
  void starting(const Operation&) override {}
  std::string find_obstacle(const Operation&) override { return {}; }
  std::string explain(const Operation&, const std::string& engine_text) override { return engine_text; }
  std::string explain(const Operation&, EngineFailure failure) override { return failure.causes.front(); }
};

}  // namespace

std::shared_ptr<OperationWatch> engine_text_watch() { return std::make_shared<EngineText>(); }

void throw_explained(OperationWatch& watch, const Operation& operation, const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = c10_error ? c10_error->what_without_backtrace() : error.what();
  C10_THROW_ERROR(DistBackendError, watch.explain(operation, text));
}

}  // namespace cohort::comm
