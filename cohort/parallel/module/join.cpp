#include "cohort/parallel/module/join.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>

#include "cohort/base/log/log.h"

namespace cohort {
namespace {

constexpr int kUnusualSkew = 1000;

void warn_of_skew(int rank) {
  base::warn_once(
      fmt::format("Detected uneven input skew of greater than {0}. This means that rank {1} has at least {0} fewer "
                  "inputs than other "
                  "currently-active ranks. This level of skew could lead to performance degradation during training.",
                  kUnusualSkew, rank));
}

at::Tensor one_number(float value, c10::Device device) {
  return at::full({1}, value, at::TensorOptions(at::kFloat).device(device));
}

c10::Device device_of_first(const std::vector<std::reference_wrapper<Joinable>>& joinables) {
  TORCH_CHECK_VALUE(!joinables.empty(), "The join context manager requires at least one joinable");
  return joinables.front().get().join_device();
}

}  // namespace

Join::Join(std::vector<std::reference_wrapper<Joinable>> joinables, JoinOptions options)
    : joinables_(std::move(joinables)),
      options_(options),
      device_(device_of_first(joinables_)),
      num_exceptions_(std::uncaught_exceptions()) {
  group_ = joinables_.front().get().join_process_group();
  for (const Joinable& joinable : joinables_) {
    TORCH_CHECK_VALUE(joinable.join_process_group() == group_,
                      "Using join context manager with multiple process groups");
  }
  for (Joinable& joinable : joinables_) hooks_.push_back(joinable.join_hook(options_));
  for (Joinable& joinable : joinables_) {
    joinable.config_ = {options_.enable, options_.throw_on_early_termination, &joinable == &joinables_.front().get()};
  }
}

Join::~Join() noexcept(false) {
  struct Leave {
    std::vector<std::reference_wrapper<Joinable>>& joinables;
    ~Leave() {
      for (Joinable& joinable : joinables) joinable.config_ = {};
    }
  };
  const Leave leave{joinables_};
  const bool is_left_by_exception = std::uncaught_exceptions() > num_exceptions_;
  if (options_.enable && !is_left_by_exception) shadow_others();
}

void Join::shadow_others() {
  bool is_last_joiner = true;
  for (int skew = 0; num_ranks_with_data() > 0; ++skew) {
    if (skew > kUnusualSkew) warn_of_skew(group_->getRank());
    if (options_.throw_on_early_termination) throw_everywhere();
    for (const auto& hook : hooks_) hook->main_hook();
    is_last_joiner = false;
  }
  for (const auto& hook : hooks_) hook->post_hook(is_last_joiner);
}

int Join::num_ranks_with_data() const {
  const auto count = one_number(0, device_);
  all_reduce(count, {.group = group_});
  return static_cast<int>(count.item<float>());
}

void Join::throw_everywhere() const {
  all_reduce(one_number(1, device_), {.group = group_});
  TORCH_CHECK(false, "Rank ", group_->getRank(), " exhausted all inputs.");
}

WorkPtr Join::notify_join_context(Joinable& joinable) {
  const auto& config = joinable.config_;
  if (!config.enable || !config.is_first_joinable) return nullptr;
  const auto group = joinable.join_process_group();
  const auto device = joinable.join_device();
  auto work = all_reduce(one_number(1, device), {.group = group, .async_op = true});
  if (!config.throw_on_early_termination) return work;
  const auto num_ended = one_number(0, device);
  all_reduce(num_ended, {.group = group});
  TORCH_CHECK(num_ended.item<float>() == 0,
              "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
  return work;
}

}  // namespace cohort
