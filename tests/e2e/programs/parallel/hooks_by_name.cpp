#include "hooks_by_name.h"

#include <functional>
#include <map>

#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "cohort/parallel/ddp/hooks/noop_hook.h"
#include "cohort/parallel/ddp/hooks/post_local_sgd_hook.h"
#include "cohort/parallel/ddp/hooks/power_sgd_hook.h"
#include "cohort/parallel/ddp/hooks/quantization_hooks.h"

namespace cohort::proof {
namespace {

using namespace cohort::ddp;

std::shared_ptr<PowerSGDState> power_sgd(PowerSGDOptions options = {}) {
  options.start_power_sgd_iter = 2;
  return std::make_shared<PowerSGDState>(std::move(options));
}

std::shared_ptr<PostLocalSGDState> post_local_sgd() {
  return std::make_shared<PostLocalSGDState>(
      PostLocalSGDOptions{.subgroup = new_subgroups(1).first, .start_local_sgd_iter = 5});
}

const std::map<std::string, std::function<void(Reducer&)>>& hooks() {
  static const std::map<std::string, std::function<void(Reducer&)>> by_name{
      {"", [](Reducer&) {}},
      {"allreduce", [](Reducer& r) { r.register_comm_hook(Group(), allreduce_hook); }},
      {"builtin_allreduce", [](Reducer& r) { r.register_builtin_comm_hook(BuiltinCommHookType::kAllReduce); }},
      {"builtin_fp16", [](Reducer& r) { r.register_builtin_comm_hook(BuiltinCommHookType::kFp16Compress); }},
      {"fp16", [](Reducer& r) { r.register_comm_hook(Group(), fp16_compress_hook); }},
      {"bf16", [](Reducer& r) { r.register_comm_hook(Group(), bf16_compress_hook); }},
      {"noop", [](Reducer& r) { r.register_comm_hook(nullptr, noop_hook); }},
      {"quantize_pertensor", [](Reducer& r) { r.register_comm_hook(Group(), quantization_pertensor_hook); }},
      {"quantize_perchannel", [](Reducer& r) { r.register_comm_hook(Group(), quantization_perchannel_hook); }},
      {"post_local_sgd", [](Reducer& r) { r.register_comm_hook(post_local_sgd(), post_local_sgd_hook); }},
      {"powersgd", [](Reducer& r) { r.register_comm_hook(power_sgd(), power_sgd_hook); }},
      {"powersgd_rank_3",
       [](Reducer& r) {
         r.register_comm_hook(
             power_sgd({.matrix_approximation_rank = 3, .orthogonalization_epsilon = 1e-8, .random_seed = 5}),
             power_sgd_hook);
       }},
      {"powersgd_batched_shapes",
       [](Reducer& r) {
         r.register_comm_hook(power_sgd({.matrix_approximation_rank = 2,
                                         .min_compression_rate = 1,
                                         .orthogonalization_epsilon = 1e-8,
                                         .batch_tensors_with_same_shape = true}),
                              power_sgd_hook);
       }},
      {"powersgd_cold",
       [](Reducer& r) {
         r.register_comm_hook(power_sgd({.use_error_feedback = false, .warm_start = false}), power_sgd_hook);
       }},
      {"powersgd_bf16_wrapper",
       [](Reducer& r) {
         r.register_comm_hook(power_sgd({.matrix_approximation_rank = 4}), bf16_compress_wrapper(power_sgd_hook));
       }},
      {"batched_powersgd", [](Reducer& r) { r.register_comm_hook(power_sgd(), batched_power_sgd_hook); }},
  };
  return by_name;
}

}  // namespace

void register_hook(const std::string& name, Reducer& reducer) { hooks().at(name)(reducer); }

}  // namespace cohort::proof
