#include "cohort/comm/gloo/make_gloo_backend.h"

#include <c10/util/Exception.h>

#include "cohort/comm/gloo/gloo_backend.h"
#include "cohort/comm/gloo/gloo_options.h"

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
  try {
    return connect_gloo(request);
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception& error) {
    if (!request.explain_failed_connect) throw;
    C10_THROW_ERROR(DistBackendError, request.explain_failed_connect(error.what()));
  }
}

}  // namespace cohort::comm
