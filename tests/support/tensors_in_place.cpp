// With COHORT_TEST_IN_PLACE=1 every tensor of a test program and of its ranks, however small, comes from the shared allocator,
// and what can be worked on where it lies is: operations on shm, and gradients that DDP reduces.
#include <cstdlib>

#include "cohort/comm/memory/apply_shared_allocator.h"
#include "cohort/comm/memory/shared_allocator.h"
#include "cohort/parallel/ddp/buckets/in_place.h"

namespace cohort::test {
namespace {

// Before main(): the program may be a rank that starts itself again.
struct TensorsInPlace {
  TensorsInPlace() {
    if (!std::getenv("COHORT_TEST_IN_PLACE")) return;
    comm::use_shared_allocator({.least_bytes = 1});
    comm::set_staged_bytes(0);
    ddp::set_least_bytes_in_place(1);
  }
};
const TensorsInPlace kTensorsInPlace;

}  // namespace
}  // namespace cohort::test
