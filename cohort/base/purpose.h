/// Purpose: for what the library calls a collective that stands nowhere in the user's program. Errors name it, since nobody looks
/// for a broadcast that he did not write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::base {

/// The numbers are part of what ranks tell each other.
enum class Purpose : uint8_t {
  kOwn,  ///< the program's own call
  kDdpBuffers,
  kDdpBuckets,
  kDdpGradients,
  kReducerBuckets,
  kReducerGradients,
  kZeroParameters,
  kFsdpMeeting,
  kSyncBatchNorm,
  kTensorParallel,
  kContextParallel,
  kClipGradNorm,
  kGradScaler,
  kDTensor,
  kModelAverage,
  kState,
  kMetrics,
  kFsdpExchange,
  kPipeline,
};
constexpr int kNumPurposes = 19;

/// Stands between a call and its purpose.
inline constexpr const char* kWhichIs = ", which is ";

/// "broadcast, which is DistributedDataParallel's exchange of buffers before a forward pass"; of kOwn the call alone.
std::string with_purpose(std::string call, Purpose purpose);

/// The reverse: kOwn where the text names none.
Purpose purpose_in(std::string_view text);

/// The hint where one rank is in a step of training and another one is not.
extern const char* const kUnevenStepsHint;
/// The hint where one rank alone has made a call of the program that communicates, such as clip_grad_norm_.
extern const char* const kMissingCallHint;
/// One of them: of ranks that call for different purposes.
const char* hint_for(Purpose one, Purpose other);

/// `hint` of a failure by which a rank was lost; of a call that is not the program's own, with what such a loss most often means.
std::string lost_rank_hint(std::string hint, Purpose purpose);

/// Says it of the collectives that this thread calls as long as it lives.
class CalledFor {
 public:
  explicit CalledFor(Purpose purpose) : before_(current_) { current_ = purpose; }
  ~CalledFor() { current_ = before_; }
  CalledFor(const CalledFor&) = delete;
  CalledFor& operator=(const CalledFor&) = delete;

  static Purpose current() { return current_; }
  /// The purpose of the outer call; `purpose` if absent.
  static Purpose current_or(Purpose purpose) { return current_ == Purpose::kOwn ? purpose : current_; }

 private:
  static inline constinit thread_local Purpose current_ = Purpose::kOwn;
  const Purpose before_;
};

}  // namespace cohort::base
