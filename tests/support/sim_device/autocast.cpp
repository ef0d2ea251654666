#include "tests/support/sim_device/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace cohort::sim {
namespace {

using namespace at::autocast;  // the macros below expect it

void register_operators_of_autocast(torch::Library& m) {
#define COHORT_SIM_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define COHORT_SIM_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define COHORT_SIM_FP32_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_LOWER_PRECISION_FP(COHORT_SIM_LOWER)
  AT_FORALL_FP32(COHORT_SIM_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(COHORT_SIM_FP32_DTYPE)
#undef COHORT_SIM_LOWER
#undef COHORT_SIM_FP32
#undef COHORT_SIM_FP32_DTYPE
}

}  // namespace

void register_autocast() {
  constexpr auto kKey = c10::DispatchKey::AutocastPrivateUse1;
  static auto* const any = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  any->fallback(torch::CppFunction::makeFallthrough());
  static auto* const aten = new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  register_operators_of_autocast(*aten);
}

}  // namespace cohort::sim
