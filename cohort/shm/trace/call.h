/// Call: a rank's call, as 16 bytes that ranks compare in every operation, and its history of calls, as 4 bytes.
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
  /// Whether this rank's tensor is in memory that all ranks map. May differ between ranks.
  bool is_shared = false;
  /// See PurposeTexts. May differ between ranks, too.
  uint8_t purpose = 0;
  int root = -1;
  /// The count that must agree; 0 for operations with uneven parts.
  uint64_t count = 0;
};

struct Signature {
  uint64_t words[2];
};

Signature encode(const Call& call);
Call decode_call(const Signature& signature);
/// Returns decode_call(signature).is_shared.
bool is_shared(const Signature& signature);
/// Whether ranks that call `a` and `b` can work together.
bool agree(const Signature& a, const Signature& b);

/// Returns the history after a call with `signature`: a number for all calls that a rank has made. Ranks with other calls have
/// another number (except once in four billion times).
uint32_t mix(uint32_t history, const Signature& signature);

/// Returns "all_reduce(SUM) of 1024 float32", "broadcast from rank 1 of 3 int64", "barrier".
std::string describe(const Call& call);

/// Returns a table with one line for ranks with the same call and purpose: "ranks 0, 2 and 3 call all_reduce(SUM) of 8 float32".
/// `names` are the numbers of the ranks in texts. If empty, their indices are used.
std::vector<std::string> table_of(const std::vector<Signature>& calls, const PurposeTexts& texts = {},
                                  const std::vector<int>& names = {});
/// Returns the hint for calls that do not agree.
std::string hint_for(const std::vector<Signature>& calls, const PurposeTexts& texts = {});

}  // namespace cohort::shm
