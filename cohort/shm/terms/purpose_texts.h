/// PurposeTexts: the texts of messages about the purposes of calls. Purposes are numbers from 1 to 31 that only the callers
/// understand; 0 is a call of the program itself. The defaults are for groups whose calls have no other purposes.
#pragma once

#include <cstdint>
#include <string>

namespace cohort::shm {

constexpr const char* kSameCallsHint =
    "make every rank call the same operation with the same shapes, dtypes and roots, in the same order";

struct PurposeTexts {
  /// Returns the call with its purpose: "all_reduce(SUM) of 8 float32, which is ...".
  std::string (*named)(std::string call, uint8_t purpose) = [](std::string call, uint8_t) { return call; };
  /// Returns the hint for ranks that call for different purposes.
  const char* (*hint)(uint8_t one, uint8_t other) = [](uint8_t, uint8_t) { return kSameCallsHint; };
  /// Returns the hint for a call that waits for a rank that has gone: `hint`, and more.
  std::string (*lost_hint)(std::string hint, uint8_t purpose) = [](std::string hint, uint8_t) { return hint; };
};

}  // namespace cohort::shm
