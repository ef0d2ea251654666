// A rank of pipeline. Commands:
//   calibrate MS                runs a stage alone, without a pipeline, that sleeps for MS in forward and both parts of backward;
//                               answers with the milliseconds that LibTorch adds in forward and in backward
//   bubble SCHEDULE STAGES MICROBATCHES MS  takes one step with such stages; answers with the milliseconds of the step, of this
//                               rank's work in it, and of each part on average
//   run hand-BYTES WARM STEPS   sends microbatches of this size from the first rank to the second; answers with the
//                               milliseconds per microbatch
//   run copy-BYTES WARM STEPS   copies this many bytes
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/prctl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/memory/shared_allocator.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"

namespace cohort::bench {
namespace {

using PipelineClock = std::chrono::steady_clock;
constexpr int kNumHandedOver = 8;  // per step
constexpr int kNumCalibrations = 16, kNumWarmCalibrations = 4;

double milliseconds_since(PipelineClock::time_point begin) {
  return std::chrono::duration<double, std::milli>(PipelineClock::now() - begin).count();
}

// Sleeps, and measures the real time of it.
struct Part {
  double milliseconds = 0, total = 0;
  int count = 0;
  void run() {
    const auto begin = PipelineClock::now();
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
    total += milliseconds_since(begin);
    ++count;
  }
  double mean() const { return count ? total / count : 0; }
};
struct Parts {
  Part forward, backward_input, backward_weight;
  void reset(double milliseconds) { forward = backward_input = backward_weight = {milliseconds}; }
  double total() const { return forward.total + backward_input.total + backward_weight.total; }
};

double median_of_added(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct SleepsInBackward : torch::autograd::Function<SleepsInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, int64_t part) {
    context->saved_data["part"] = part;
    return x.clone();
  }
  static TensorList backward(torch::autograd::AutogradContext* context, const TensorList& grads) {
    reinterpret_cast<Part*>(context->saved_data["part"].toInt())->run();
    return {grads[0], at::Tensor()};
  }
};

at::Tensor sleeps_in_backward(const at::Tensor& x, Part& part) {
  return SleepsInBackward::apply(x, reinterpret_cast<int64_t>(&part));
}

struct SleeperImpl : torch::nn::Module {
  explicit SleeperImpl(Parts* parts)
      : parts(parts),
        entry(register_parameter("entry", at::zeros({4}))),
        weight(register_parameter("weight", at::zeros({4}))) {}
  at::Tensor forward(const at::Tensor& x) {
    parts->forward.run();
    return sleeps_in_backward(x + entry, parts->backward_input) + sleeps_in_backward(weight, parts->backward_weight);
  }
  Parts* parts;
  at::Tensor entry, weight;
};
TORCH_MODULE(Sleeper);

// Returns its input or, once each, tensors made before.
struct PasserImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    if (made.empty()) return x;
    at::Tensor y = std::move(made.back());
    made.pop_back();
    return y;
  }
  std::vector<at::Tensor> made;
};
TORCH_MODULE(Passer);

class PipelineRank {
 public:
  explicit PipelineRank(int rank) : rank_(rank) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, what;
    words >> verb >> what;
    if (verb == "calibrate") return calibrate(std::stod(what));
    if (verb == "bubble") return bubble(what, words);
    int num_warm = 0, num_steps = 0;
    words >> num_warm >> num_steps;
    const auto num_bytes = std::stoll(what.substr(what.find('-') + 1));
    return std::to_string(what.starts_with("hand") ? hand_over(num_bytes, num_warm, num_steps)
                                                   : copy(num_bytes, num_warm, num_steps));
  }

 private:
  // Returns the time of `work` without sleeping.
  template <class Work>
  double added_by(const Work& work) {
    const double slept_before = parts_.total();
    const auto begin = PipelineClock::now();
    work();
    return milliseconds_since(begin) - (parts_.total() - slept_before);
  }

  std::string calibrate(double milliseconds) {
    Sleeper stage(&parts_);
    parts_.reset(milliseconds);
    std::vector<double> forward, backward;
    barrier();
    for (int i = 0; i < kNumWarmCalibrations + kNumCalibrations; ++i) {
      const at::Tensor x = at::ones({1, 4}).requires_grad_(true), gradient = at::ones({1, 4});
      at::Tensor y;
      const double forward_added = added_by([&] { y = stage(x); });
      const double backward_added = added_by([&] { torch::autograd::backward({y}, {gradient}); });
      if (i < kNumWarmCalibrations) continue;
      forward.push_back(forward_added);
      backward.push_back(backward_added);
    }
    added_forward_ = median_of_added(forward);
    added_backward_ = median_of_added(backward);
    return std::to_string(added_forward_) + " " + std::to_string(added_backward_);
  }

  std::string bubble(const std::string& name, std::istringstream& words) {
    int num_stages = 0, num_microbatches = 0;
    double milliseconds = 0;
    words >> num_stages >> num_microbatches >> milliseconds;
    auto& schedule = schedules_[name];
    if (!schedule) schedule = make_sleepers(name, num_stages, num_microbatches);
    parts_.reset(milliseconds);
    const TensorList inputs = rank_ == 0 ? TensorList{at::ones({num_microbatches, 4})} : TensorList();
    barrier();
    const auto begin = PipelineClock::now();
    schedule->step(inputs, {.target = at::ones({num_microbatches, 4}), .return_outputs = false});
    const double elapsed = milliseconds_since(begin);
    std::ostringstream text;
    const double work =
        parts_.total() + added_forward_ * parts_.forward.count + added_backward_ * parts_.backward_weight.count;
    text << elapsed << " " << work << " " << parts_.forward.mean() + added_forward_ << " "
         << parts_.backward_input.mean() + added_backward_ / 2 << " "
         << parts_.backward_weight.mean() + added_backward_ / 2;
    return text.str();
  }

  std::unique_ptr<PipelineSchedule> make_sleepers(const std::string& name, int num_stages, int num_microbatches) {
    const auto order = pipeline::make_pipeline_order(name, get_world_size(), num_stages, num_microbatches);
    std::map<int, PipelineStage> stages;
    for (const auto& action : order[static_cast<size_t>(rank_)]) {
      pipeline::for_each_part(action, [&](const pipeline::Action& part) {
        if (part.stage >= 0) stages.try_emplace(part.stage, Sleeper(&parts_), part.stage, num_stages);
      });
    }
    std::vector<PipelineStage> list;
    for (const auto& [index, stage] : stages) list.push_back(stage);
    const auto loss = [](const at::Tensor& x, const at::Tensor& target) { return (x - target).square().mean(); };
    return std::make_unique<PipelineSchedule>(name, list, num_microbatches, PipelineOptions{.loss_fn = loss_of(loss)});
  }

  double hand_over(int64_t num_bytes, int num_warm, int num_steps) {
    auto& schedule = schedules_["hand-" + std::to_string(num_bytes)];
    auto& stage = passers_[num_bytes];
    if (!schedule) {
      stage = Passer();
      const std::vector<PipelineStage> stages = {PipelineStage(stage, rank_, 2)};
      schedule = std::make_unique<PipelineSchedule>("GPipe", stages, kNumHandedOver);
    }
    const at::Tensor& batch = batch_of(num_bytes);
    // Like a stage's results, which no other code holds.
    const int num_made = rank_ == 0 && comm::has_shared_allocator() ? (num_warm + num_steps) * kNumHandedOver : 0;
    for (int i = 0; i < num_made; ++i) stage->made.push_back(batch[i % kNumHandedOver].clone());
    const TensorList inputs = rank_ == 0 ? TensorList{batch} : TensorList();
    const auto step = [&] { schedule->eval(inputs, {.return_outputs = false}); };
    for (int i = 0; i < num_warm; ++i) step();
    barrier();
    const auto begin = PipelineClock::now();
    for (int i = 0; i < num_steps; ++i) step();
    return milliseconds_since(begin) / num_steps / kNumHandedOver;
  }

  double copy(int64_t num_bytes, int num_warm, int num_steps) {
    if (rank_ != 0) return 0;
    const at::Tensor& batch = batch_of(num_bytes);
    auto& target = targets_[num_bytes];
    if (!target.defined()) target = at::zeros_like(batch);
    const auto step = [&] {
      for (int i = 0; i < kNumHandedOver; ++i) {
        const int64_t place = i * num_bytes / 4;
        std::memcpy(target.mutable_data_ptr<float>() + place, batch.const_data_ptr<float>() + place,
                    static_cast<size_t>(num_bytes));
      }
    };
    for (int i = 0; i < num_warm; ++i) step();
    const auto begin = PipelineClock::now();
    for (int i = 0; i < num_steps; ++i) step();
    return milliseconds_since(begin) / num_steps / kNumHandedOver;
  }

  const at::Tensor& batch_of(int64_t num_bytes) {
    auto& batch = batches_[num_bytes];
    if (!batch.defined()) batch = at::ones({kNumHandedOver, num_bytes / 4});
    return batch;
  }

  int rank_;
  Parts parts_;
  double added_forward_ = 0, added_backward_ = 0;
  std::map<std::string, std::unique_ptr<PipelineSchedule>> schedules_;
  std::map<int64_t, Passer> passers_;
  std::map<int64_t, at::Tensor> batches_, targets_;
};

}  // namespace

int run_pipeline_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  prctl(PR_SET_TIMERSLACK, 1000UL);
  const int rank = std::stoi(arguments.at(2));
  init_process_group({.backend = arguments.at(1),
                      .init_method = arguments.at(4),
                      .world_size = std::stoi(arguments.at(0)),
                      .rank = rank});
  {
    PipelineRank self(rank);
    serve_commands(arguments.at(3), [&](const std::string& line) { return self.answer(line); });
  }
  destroy_process_group();
  return 0;
}

}  // namespace cohort::bench
