/// Times of these tests.
#pragma once

#include <chrono>

namespace cohort::store {

/// Long enough for others to have a turn, and for a timeout that is wanted.
inline constexpr std::chrono::milliseconds kAWhile{100};
/// For what happens unless something is broken.
inline constexpr std::chrono::seconds kHangLimit{60};

}  // namespace cohort::store
