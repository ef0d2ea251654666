#include "cohort/comm/gloo/make_gloo_backend.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>

#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/gloo/gloo_backend.h"
#include "cohort/comm/gloo/gloo_options.h"
#include "cohort/comm/watch/throw_failure.h"

namespace cohort::comm {
namespace {

c10::intrusive_ptr<c10d::Backend> connect_gloo(const BackendRequest& request) {
  auto engine_options = make_gloo_options(request.timeout);
  engine_options->group_name = request.group_name;
  engine_options->global_ranks_in_group = request.global_ranks;
  auto backend = c10::make_intrusive<GlooBackend>(request, std::move(engine_options));
  backend->setSequenceNumberForGroup();
  return backend;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const BackendRequest& request) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    return connect_gloo(request);
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception& error) {
    if (!request.explain_failed_connect) throw;
    // Gloo's exception does not say whether it was a timeout; the clock does.
    const bool timed_out =
        std::chrono::steady_clock::now() - begin >= std::min(request.timeout, request.store->getTimeout());
    throw_failure(request.explain_failed_connect(
        {.kind = timed_out ? Failure::Kind::kTimeout : Failure::Kind::kEngine, .causes = {text_of(error)}}));
  }
}

}  // namespace cohort::comm
