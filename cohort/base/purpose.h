/// Purpose: for what the library calls a collective that stands nowhere in the user's program. Errors name it, since nobody looks
/// for a broadcast that he did not write.
#pragma once

#include <cstdint>

namespace cohort::base {

/// The numbers are part of what ranks tell each other.
enum class Purpose : uint8_t {
  kOwn,  ///< the program's own call
  kDdpBuffers,
  kDdpBuckets,
  kDdpGradients,
  kReducerBuckets,
  kReducerGradients,
};
constexpr int kNumPurposes = 6;

/// "DistributedDataParallel's exchange of buffers before a forward pass"; "" for kOwn.
const char* in_words(Purpose purpose);

/// What to do where one rank is in a step of training and another one is not.
extern const char* const kUnevenStepsHint;

/// Says it of the collectives that this thread calls as long as it lives.
class CalledFor {
 public:
  explicit CalledFor(Purpose purpose) : before_(current_) { current_ = purpose; }
  ~CalledFor() { current_ = before_; }
  CalledFor(const CalledFor&) = delete;
  CalledFor& operator=(const CalledFor&) = delete;

  static Purpose current() { return current_; }

 private:
  static inline constinit thread_local Purpose current_ = Purpose::kOwn;
  const Purpose before_;
};

}  // namespace cohort::base
