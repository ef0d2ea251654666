/// Call: what a rank calls, as the 16 bytes that ranks compare in every operation, and all that it has called, as 4 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/shm/terms/purpose_texts.h"
#include "cohort/shm/terms/types.h"

namespace cohort::shm {

struct Call {
  OpKind kind = OpKind::kNone;
  DType dtype = DType::kBytes;
  ReduceOp reduce_op = ReduceOp::kNone;
  /// This rank's tensor lies in memory that all ranks map. May differ between ranks.
  bool is_shared = false;
  /// See PurposeTexts. May differ between ranks, too.
  uint8_t purpose = 0;
  int root = -1;
  /// What must agree: of operations with uneven parts 0.
  uint64_t count = 0;
};

struct Signature {
  uint64_t words[2];
};

Signature encode(const Call& call);
Call decode_call(const Signature& signature);
/// decode_call(signature).is_shared
bool is_shared(const Signature& signature);
/// Ranks that call `a` and `b` can do that together.
bool agree(const Signature& a, const Signature& b);

/// A rank's history: a number for all calls that it has made, the last one `signature`. Ranks that have made other calls have
/// another one (but one time in four billions).
uint32_t mix(uint32_t history, const Signature& signature);

/// "all_reduce(SUM) of 1024 float32", "broadcast from rank 1 of 3 int64", "barrier".
std::string describe(const Call& call);

/// Ranks with the same call for the same purpose in one line: "ranks 0, 2 and 3 call all_reduce(SUM) of 8 float32".
/// `names`: what the ranks are called; empty: by their place.
std::vector<std::string> table_of(const std::vector<Signature>& calls, const PurposeTexts& texts = {},
                                  const std::vector<int>& names = {});
/// What to do about calls that do not agree.
std::string hint_for(const std::vector<Signature>& calls, const PurposeTexts& texts = {});

}  // namespace cohort::shm
