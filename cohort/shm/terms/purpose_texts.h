/// PurposeTexts: what messages say of the purposes of calls, numbers from 1 to 31 that only those who call understand; 0 is a
/// call of the program itself. The defaults are for groups whose calls have no other.
#pragma once

#include <cstdint>
#include <string>

namespace cohort::shm {

constexpr const char* kSameCallsHint =
    "make every rank call the same operation with the same shapes, dtypes and roots, in the same order";

struct PurposeTexts {
  /// The call with its purpose: "all_reduce(SUM) of 8 float32, which is ...".
  std::string (*named)(std::string call, uint8_t purpose) = [](std::string call, uint8_t) { return call; };
  /// What to do where ranks call for different purposes.
  const char* (*hint)(uint8_t one, uint8_t other) = [](uint8_t, uint8_t) { return kSameCallsHint; };
  /// What to do where a rank has gone that a call waits for: `hint`, and more.
  std::string (*lost_hint)(std::string hint, uint8_t purpose) = [](std::string hint, uint8_t) { return hint; };
};

}  // namespace cohort::shm
