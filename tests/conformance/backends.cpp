#include "tests/conformance/backends.h"

#include "cohort/comm/gloo/make_gloo_backend.h"
#include "cohort/comm/registry/cohort_backend.h"
#include "cohort/comm/shm/make_shm_backend.h"

namespace cohort::test {

const std::vector<BackendUnderTest>& backends_under_test() {
  const std::vector<int> threads{1, 2, 3, 4};
  const std::vector<int> processes{2, 3, 4};
  static const std::vector<BackendUnderTest> table{
      {"gloo",
       comm::make_gloo_backend,
       threads,
       processes,
       {{"recv_any_source of nothing", "Gloo cannot wait for a message without content from just anybody"}},
       10000,
       4000},
      {"cohort", comm::make_cohort_backend, threads, processes, {}, 15000, 4000},
      // What "cohort" has chosen for all of its cases, as there is one host: here only for what is chosen by name.
      {"shm", comm::make_shm_backend, {3}, {3}, {}, 5000, 2000},
  };
  return table;
}

}  // namespace cohort::test
