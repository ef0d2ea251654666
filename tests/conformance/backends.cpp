#include "tests/conformance/backends.h"

#include "cohort/comm/gloo/make_gloo_backend.h"
#include "cohort/comm/registry/cohort_backend.h"
#include "cohort/comm/shm/make_shm_backend.h"

namespace cohort::test {

const std::vector<BackendUnderTest>& backends_under_test() {
  static const std::vector<BackendUnderTest> table{
      {"gloo",
       comm::make_gloo_backend,
       {{"recv_any_source of nothing", "Gloo cannot wait for a message without content from just anybody"}},
       10000,
       4000},
      {"shm", comm::make_shm_backend, {}, 15000, 4000},
      {"cohort", comm::make_cohort_backend, {}, 15000, 4000},
  };
  return table;
}

}  // namespace cohort::test
