#include "cohort/shm/kernels/instruction_set.h"

#if defined(COHORT_SHM_X86_KERNELS)
#include <cpuid.h>
#endif

#include "cohort/base/log/log.h"
#include "cohort/base/system/env.h"

namespace cohort::shm {
namespace {

constexpr const char* kVariable = "COHORT_SHM_INSTRUCTION_SET";

#if defined(COHORT_SHM_X86_KERNELS)
// Clang 16 has no __builtin_cpu_supports("f16c").
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

// __builtin_cpu_supports queries cpuid and, for wide registers, whether the operating system saves them (xgetbv).
bool runs_here(InstructionSet set) {
  switch (set) {
    case InstructionSet::kScalar:
      return true;
#if defined(COHORT_SHM_NEON_KERNELS)
    case InstructionSet::kNeon:
      return true;
#endif
#if defined(COHORT_SHM_X86_KERNELS)
    case InstructionSet::kAvx2:
      return __builtin_cpu_supports("avx2") && has_f16c();
    case InstructionSet::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             runs_here(InstructionSet::kAvx2);
    case InstructionSet::kAvx512Bf16:
      return __builtin_cpu_supports("avx512bf16") && runs_here(InstructionSet::kAvx512);
#endif
    default:
      return false;
  }
}

std::string names(const std::vector<InstructionSet>& sets) {
  std::string text;
  for (const InstructionSet set : sets) text += (text.empty() ? "" : ", ") + std::string(name_of(set));
  return text;
}

}  // namespace

const char* name_of(InstructionSet set) {
  constexpr const char* kNames[kNumInstructionSets] = {"scalar", "neon", "avx2", "avx512", "avx512-bf16"};
  const auto index = static_cast<int>(set);
  return index < kNumInstructionSets ? kNames[index] : "an unknown instruction set";
}

bool is_available(InstructionSet set) { return runs_here(set); }

std::vector<InstructionSet> available_instruction_sets() {
  std::vector<InstructionSet> sets;
  for (int i = 0; i < kNumInstructionSets; ++i) {
    if (is_available(static_cast<InstructionSet>(i))) sets.push_back(static_cast<InstructionSet>(i));
  }
  return sets;
}

InstructionSetChoice choose_instruction_set(const std::optional<std::string>& wished) {
  const std::vector<InstructionSet> available = available_instruction_sets();
  const InstructionSet best = available.back();
  if (!wished || wished->empty()) return {best, ""};
  for (const InstructionSet set : available) {
    if (*wished == name_of(set)) return {set, ""};
  }
  return {best, std::string(kVariable) + "=\"" + *wished +
                    "\" is not one of the instruction sets that this machine has: " + names(available) + "; using " +
                    name_of(best)};
}

InstructionSet best_instruction_set() {
  static const InstructionSet best = [] {
    const InstructionSetChoice choice = choose_instruction_set(base::get_env(kVariable));
    if (!choice.warning.empty()) base::log_warning(choice.warning);
    return choice.set;
  }();
  return best;
}

}  // namespace cohort::shm
