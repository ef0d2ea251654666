/// Purpose: why the library calls a collective that is not in the user's program. Errors name the purpose, because a user cannot
/// search the program for such a call. Each folder defines its own purposes and states them around its calls:
///
///     inline const comm::Purpose kMyExchange(20, "my strategy's exchange of this and that in a step");
///     ...
///     const comm::CalledFor purpose(kMyExchange);
///     work = group->allreduce(tensors);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/export.h"

namespace cohort::comm {

/// Registered in this process when it is constructed, so each is a variable of a namespace. A null pointer to a Purpose means
/// that the program itself makes the call.
class COHORT_TEST_API Purpose {
 public:
  static constexpr int kMaxNumber = 31;

  /// The caller.
  enum Caller : uint8_t {
    kStep,    ///< a step of training
    kByName,  ///< the program, by the name of a function, once or anywhere: a condition may keep ranks from calling it
  };

  /// `number`: 1 to kMaxNumber. Ranks send it to each other, so numbers are unique, and numbers of removed purposes stay unused.
  /// `words`: a string literal that follows "which is". Throws std::logic_error for the number of another purpose.
  Purpose(uint8_t number, const char* words, Caller caller = kStep);
  Purpose(const Purpose&) = delete;
  Purpose& operator=(const Purpose&) = delete;

  const uint8_t number;
  const std::string_view words;
  const Caller caller;
};

/// Returns null for 0 and for a number that this process does not know.
COHORT_TEST_API const Purpose* purpose_of(uint8_t number);
/// Returns null for an empty text and for words that this process does not know.
COHORT_TEST_API const Purpose* purpose_of(std::string_view words);
/// Returns the purpose in a text that job::signature() has made.
COHORT_TEST_API const Purpose* purpose_in(std::string_view signature);

/// Returns "broadcast, which is DistributedDataParallel's exchange of buffers before a forward pass", or `call` without a
/// purpose.
COHORT_TEST_API std::string with_purpose(std::string call, const Purpose* purpose);

/// The hint if one rank is in a training step and another one is not.
COHORT_TEST_API extern const char* const kUnevenStepsHint;
/// The hint if only some ranks have called a function that communicates, such as clip_grad_norm_.
COHORT_TEST_API extern const char* const kMissingCallHint;
/// Returns one of these two hints, for ranks that call for different purposes.
COHORT_TEST_API const char* hint_for(const Purpose* one, const Purpose* other);

/// Returns `hint` for a failure by which a rank was lost. If the call is not the program's own, adds the most likely reason.
COHORT_TEST_API std::string lost_rank_hint(std::string hint, const Purpose* purpose);

/// States the purpose of the collectives that this thread calls, as long as it lives.
class COHORT_TEST_API CalledFor {
 public:
  explicit CalledFor(const Purpose& purpose) : before_(current_) { current_ = &purpose; }
  ~CalledFor() { current_ = before_; }
  CalledFor(const CalledFor&) = delete;
  CalledFor& operator=(const CalledFor&) = delete;

  static const Purpose* current() { return current_; }
  /// Returns the purpose of the outer call, or `purpose` if absent.
  static const Purpose& current_or(const Purpose& purpose) { return current_ ? *current_ : purpose; }

 private:
  static inline constinit thread_local const Purpose* current_ = nullptr;
  const Purpose* const before_;
};

}  // namespace cohort::comm
