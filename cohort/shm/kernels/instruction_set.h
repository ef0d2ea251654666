/// Instruction sets that have kernels, and those that this machine supports.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cohort::shm {

/// In ascending order of preference. kScalar runs everywhere; kNeon on every aarch64.
enum class InstructionSet { kScalar, kNeon, kAvx2, kAvx512, kAvx512Bf16 };
constexpr int kNumInstructionSets = 5;

/// Returns "avx512-bf16" and the like: the values of COHORT_SHM_INSTRUCTION_SET.
const char* name_of(InstructionSet set);
/// Whether it was compiled in, and this machine and its operating system can run it.
bool is_available(InstructionSet set);
/// Returns the available sets in ascending order of preference.
std::vector<InstructionSet> available_instruction_sets();

/// Returns the best available set, or a lesser one that COHORT_SHM_INSTRUCTION_SET=scalar|neon|avx2|avx512|avx512-bf16 asks for.
/// Reads the environment at the first call, and warns once of a value that it cannot use.
InstructionSet best_instruction_set();

struct InstructionSetChoice {
  InstructionSet set;
  /// The reason why `wished` was not used; empty if it was.
  std::string warning;
};
/// Returns the choice for a value of the variable. Pure, except that it queries the processor.
InstructionSetChoice choose_instruction_set(const std::optional<std::string>& wished);

}  // namespace cohort::shm
