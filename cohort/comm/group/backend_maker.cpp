#include "cohort/comm/group/backend_maker.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>

#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/comm/start/failed_connect.h"
#include "cohort/comm/start/membership_check.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/job/failure.h"
#include "cohort/job/shm_choice.h"

namespace cohort::comm {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

}  // namespace

BackendMaker::BackendMaker(const GroupRecord& record, std::shared_ptr<const Roster> roster, Membership own)
    : record_(record),
      roster_(std::move(roster)),
      own_(std::move(own)),
      shm_obstacles_(roster_->shm_obstacles(record.ranks)) {
  TORCH_CHECK_VALUE(shm_obstacles_.empty() || !any_can(record.config, &BackendCapability::shares_memory),
                    job::failure_text(job::shm_refusal(record.description, shm_obstacles_)));
}

// Withdraws from the membership check after a failure, so that ranks which come later do not rely on this one.
template <class Make>
auto BackendMaker::leaving_on_failure(Make make) const {
  try {
    return make();
  } catch (const c10::ValueError&) {
    throw;
  } catch (const std::exception&) {
    if (own_.has_called_roll) withdraw_membership(record_.store, own_.rank);
    throw;
  }
}

BackendPtr BackendMaker::make(const std::string& backend, const StorePtr& store) {
  const auto& kind = backend_kind(backend);
  return leaving_on_failure([&] {
    auto made = kind.create(request(store));
    TORCH_CHECK(made, "[cohort] the creator of backend \"", backend, "\" returned no backend");
    return kind.is_registered ? made : wrap(std::move(made), store);
  });
}

CpuBackend BackendMaker::choose_cpu(const StorePtr& store) {
  return leaving_on_failure([&] {
    auto chosen = make_cpu_backend(request(store));
    chosen.backend = wrap(std::move(chosen.backend), store);
    return chosen;
  });
}

BackendRequest BackendMaker::request(const StorePtr& store) const {
  return {.store = store,
          .rank = own_.rank,
          .world_size = static_cast<int>(record_.ranks.size()),
          .timeout = record_.timeout,
          .group_name = record_.description,
          .global_ranks = own_.global_ranks,
          .watch = record_.watch,
          .device_id = own_.device_id,
          .c10d_name = record_.name,
          .start_count = roster_->peers().start_count(),
          .pids = roster_->pids(record_.ranks),
          .shm_obstacles = shm_obstacles_,
          .explain_failed_connect = explainer()};
}

// The function outlives the maker: a backend may keep its request.
std::function<Failure(const Failure&)> BackendMaker::explainer() const {
  const FailedConnect failure{.store = record_.store,
                              .group = record_.description,
                              .ranks = record_.ranks,
                              .option = own_.timeout_option,
                              .cause = {}};
  return [failure, roster = roster_](const Failure& cause) {
    auto explained = failure;
    explained.cause = cause;
    return explain_failed_connect(explained, roster->peers());
  };
}

BackendPtr BackendMaker::wrap(BackendPtr backend, const StorePtr& store) const {
  if (!own_.wraps_for_debugging || c10d::debug_level() != c10d::DebugLevel::Detail) return backend;
  const auto helper_store = c10::make_intrusive<c10d::PrefixStore>("pg_wrapper:" + record_.name, store);
  try {
    auto helper =
        c10::make_intrusive<c10d::ProcessGroupGloo>(helper_store, own_.rank, static_cast<int>(record_.ranks.size()),
                                                    c10d::ProcessGroupGloo::Options::create_default(record_.timeout));
    return c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, std::move(helper));
  } catch (const std::exception& error) {
    throw_failure(explainer()({.causes = {text_of(error)}}));
  }
}

}  // namespace cohort::comm
