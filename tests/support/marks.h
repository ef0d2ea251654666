/// Marks above a test (TEST, TEST_F, TEST_P) or above an INSTANTIATE_TEST_SUITE_P, for CTest; they are no code.
/// tests/support/list_tests.py reads them from the source when a test program has been linked.
///
///     TIER(all)       // in `make test-all` and `make release-check`, not in `make test`
///     BACKEND(both)
///     TEST(Reducer, SaysWhoFailed) { ... }
#pragma once

/// Where the test belongs. `gate`: `make test`; `all`: only where all tests run. Above an INSTANTIATE_TEST_SUITE_P: its values.
/// `TIER_OF_FILE(all)` at the top: every test of the file that says nothing itself.
#define TIER(which)
#define TIER_OF_FILE(which)

/// Sets what backend_of_tests() is (rank_threads.h). A test without a mark runs on `shm`, which users get by default, and in turn
/// on Gloo and with all tensors in memory that ranks share (heavy_parts.py). `gloo`: on Gloo only; `shm`: on shm only; `both`: on
/// each, always, since the test sees a difference.
#define BACKEND(which)
#define BACKEND_OF_FILE(which)

/// Not with all tensors in memory that ranks share: the test counts memory or copies, or has a shared allocator of its own.
#define PLACE(own)
#define PLACE_OF_FILE(own)
