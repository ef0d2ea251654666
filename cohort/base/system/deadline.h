/// The times at which waits end. Users choose timeouts, which may be as long as the type allows ("no limit"): `now() + time`
/// would then overflow, and so would a comparison of such a timeout with one in nanoseconds.
#pragma once

#include <algorithm>
#include <chrono>

namespace cohort::base {

using Moment = std::chrono::steady_clock::time_point;

/// Longer than any job. A time point plus a few of these does not overflow.
constexpr std::chrono::milliseconds kLongestTime = std::chrono::hours(24 * 365 * 50);

/// Returns `time`, limited to what can be added to a time point (in both directions).
constexpr std::chrono::milliseconds bounded_time(std::chrono::milliseconds time) {
  return std::clamp(time, -kLongestTime, kLongestTime);
}

inline Moment deadline_after(std::chrono::milliseconds time, Moment begin = std::chrono::steady_clock::now()) {
  return begin + bounded_time(time);
}

/// The time left, rounded up so that the last millisecond is not spent spinning; zero or negative once it is over.
inline std::chrono::milliseconds time_left(Moment deadline, Moment now = std::chrono::steady_clock::now()) {
  return std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
}

/// The time left for poll(): 0 when it is over, and at most an hour, so that the caller checks the deadline again.
inline int milliseconds_until(Moment deadline) {
  constexpr std::chrono::milliseconds kLongestPoll = std::chrono::hours(1);
  return static_cast<int>(std::clamp(time_left(deadline), std::chrono::milliseconds(0), kLongestPoll).count());
}

}  // namespace cohort::base
