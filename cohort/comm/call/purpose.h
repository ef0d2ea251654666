/// Purpose: what the library calls a collective for that stands nowhere in the user's program. Errors name it, since nobody looks
/// for a broadcast that he did not write. Each room defines its own, and says it where it calls:
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

/// Known in this process from its construction on; so each is a variable of a namespace. Null pointers to it mean that the
/// program itself makes the call.
class COHORT_TEST_API Purpose {
 public:
  static constexpr int kMaxNumber = 31;

  /// Who makes the call.
  enum Caller : uint8_t {
    kStep,    ///< a step of training
    kByName,  ///< the program, by the name of a function, once or where it likes: a condition may keep ranks from it
  };

  /// `number`: 1 to kMaxNumber; ranks tell it each other, so no purpose gets that of another one, also of one that is gone.
  /// `words`: of static storage, to stand behind "which is". Throws std::logic_error for the number of another purpose.
  Purpose(uint8_t number, const char* words, Caller caller = kStep);
  Purpose(const Purpose&) = delete;
  Purpose& operator=(const Purpose&) = delete;

  const uint8_t number;
  const std::string_view words;
  const Caller caller;
};

/// Null for 0 and for a number that this process does not know.
COHORT_TEST_API const Purpose* purpose_of(uint8_t number);
/// Null for an empty text and for words that this process does not know.
COHORT_TEST_API const Purpose* purpose_of(std::string_view words);
/// Of what job::signature() has made.
COHORT_TEST_API const Purpose* purpose_in(std::string_view signature);

/// "broadcast, which is DistributedDataParallel's exchange of buffers before a forward pass"; without a purpose the call alone.
COHORT_TEST_API std::string with_purpose(std::string call, const Purpose* purpose);

/// The hint where one rank is in a step of training and another one is not.
COHORT_TEST_API extern const char* const kUnevenStepsHint;
/// The hint where one rank alone has made a call of the program that communicates, such as clip_grad_norm_.
COHORT_TEST_API extern const char* const kMissingCallHint;
/// One of them: of ranks that call for different purposes.
COHORT_TEST_API const char* hint_for(const Purpose* one, const Purpose* other);

/// `hint` of a failure by which a rank was lost; of a call that is not the program's own, with what such a loss most often means.
COHORT_TEST_API std::string lost_rank_hint(std::string hint, const Purpose* purpose);

/// Says it of the collectives that this thread calls as long as it lives.
class COHORT_TEST_API CalledFor {
 public:
  explicit CalledFor(const Purpose& purpose) : before_(current_) { current_ = &purpose; }
  ~CalledFor() { current_ = before_; }
  CalledFor(const CalledFor&) = delete;
  CalledFor& operator=(const CalledFor&) = delete;

  static const Purpose* current() { return current_; }
  /// The purpose of the outer call; `purpose` if absent.
  static const Purpose& current_or(const Purpose& purpose) { return current_ ? *current_ : purpose; }

 private:
  static inline constinit thread_local const Purpose* current_ = nullptr;
  const Purpose* const before_;
};

}  // namespace cohort::comm
