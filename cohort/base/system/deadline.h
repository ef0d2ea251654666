/// Moments at which waits end. Users choose times, which may be as long as the type allows ("no limit"): `now() + time`
/// would overflow then, and so would a comparison of such a time with one in nanoseconds.
#pragma once

#include <algorithm>
#include <chrono>

namespace cohort::base {

using Moment = std::chrono::steady_clock::time_point;

/// Longer than any job. A few of these fit into a sum with a moment.
constexpr std::chrono::milliseconds kLongestTime = std::chrono::hours(24 * 365 * 50);

/// The time, or the longest (or, of a negative one, least) that can be reckoned with.
constexpr std::chrono::milliseconds bounded_time(std::chrono::milliseconds time) {
  return std::clamp(time, -kLongestTime, kLongestTime);
}

inline Moment deadline_after(std::chrono::milliseconds time, Moment begin = std::chrono::steady_clock::now()) {
  return begin + bounded_time(time);
}

/// Rounded up, or the last millisecond would be spent spinning; not positive once it is over.
inline std::chrono::milliseconds time_left(Moment deadline, Moment now = std::chrono::steady_clock::now()) {
  return std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
}

/// For poll(): the time left; 0 when it is over, and an hour at most, so that who waits looks at the deadline again.
inline int milliseconds_until(Moment deadline) {
  constexpr std::chrono::milliseconds kLongestPoll = std::chrono::hours(1);
  return static_cast<int>(std::clamp(time_left(deadline), std::chrono::milliseconds(0), kLongestPoll).count());
}

}  // namespace cohort::base
