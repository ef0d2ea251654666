/// Marks above a test (TEST, TEST_F, TEST_P) or above an INSTANTIATE_TEST_SUITE_P, for CTest; they are no code.
/// tests/support/list_tests.py reads them from the source when a test program has been linked.
///
///     TIER(all)       // in `make test-all` and `make release-check`, not in `make test`
///     BACKEND(both)
///     TEST(Reducer, SaysWhoFailed) { ... }
#pragma once

/// Where the test belongs. `gate`: `make test`; `all`: only where all tests run. Above an INSTANTIATE_TEST_SUITE_P it is true of
/// its values. `TIER_OF_FILE(all)` at the top: every test of the file that says nothing itself.
#define TIER(which)
#define TIER_OF_FILE(which)

/// What backend_of_tests() is (rank_threads.h). A test without a mark runs on `shm`, which users get by default, and in turn, a third
/// of them in each run of CI, on Gloo and with all tensors in memory that ranks share. `gloo`: on Gloo only, `shm`: on shm only,
/// `both`: on each, always, since they differ in what the test sees.
#define BACKEND(which)
#define BACKEND_OF_FILE(which)

/// A test that runs with tensors where a user's program has them only: it counts memory or copies, or it has a shared allocator of
/// its own.
#define PLACE(own)
#define PLACE_OF_FILE(own)
