/// Instruction sets that kernels were written for, and which of them this machine has.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cohort::shm {

/// From the plainest to the best. kScalar runs everywhere; kNeon on every aarch64.
enum class InstructionSet { kScalar, kNeon, kAvx2, kAvx512, kAvx512Bf16 };
constexpr int kNumInstructionSets = 5;

/// "avx512-bf16": the words of COHORT_SHM_INSTRUCTION_SET.
const char* name_of(InstructionSet set);
/// True if it was compiled in, and this machine and its operating system can run it.
bool is_available(InstructionSet set);
/// From the plainest to the best.
std::vector<InstructionSet> available_instruction_sets();

/// The best that is available, or a lesser one that COHORT_SHM_INSTRUCTION_SET=scalar|neon|avx2|avx512|avx512-bf16 asks for.
/// The environment is read at the first call; a word that cannot be followed is warned of once.
InstructionSet best_instruction_set();

struct InstructionSetChoice {
  InstructionSet set;
  /// Why `wished` was not followed; empty if it was.
  std::string warning;
};
/// What best_instruction_set() makes of the variable's value. Pure, apart from asking the processor.
InstructionSetChoice choose_instruction_set(const std::optional<std::string>& wished);

}  // namespace cohort::shm
