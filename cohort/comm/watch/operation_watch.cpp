#include "cohort/comm/watch/operation_watch.h"

namespace cohort::comm {
namespace {

using base::Failure;

// Returns the cause without a headline, so that the text is the engine's.
Failure nearest_cause(Failure failure) { return {.kind = failure.kind, .causes = {std::move(failure.causes.front())}}; }

struct EngineText final : OperationWatch {
  void starting(const job::Operation&) override {}
  std::string find_obstacle(const job::Operation&) override { return {}; }
  Failure explain(const job::Operation&, Failure failure) override { return nearest_cause(std::move(failure)); }
  Failure find_cause(const job::Operation&, Failure failure) override { return nearest_cause(std::move(failure)); }
};

}  // namespace

std::shared_ptr<OperationWatch> engine_text_watch() { return std::make_shared<EngineText>(); }

}  // namespace cohort::comm
