// A C++ rank of `train`. Trainees: "loop" (DistributedDataParallel, DataLoader and a fused optimizer in a hand-written loop) and
// "floor" (forward and backward of the same model without DDP, on a batch in memory). Commands: "copy TRAINEE MODEL WORKERS BATCH
// DATA" makes one; "verify TRAINEE" takes the first steps and answers with their losses and sums of the parameters; "run TRAINEE
// WARM STEPS" answers with the milliseconds of each timed step: data, forward, backward, step; "drop" frees all. train_rank.py is
// the same program in Python.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <map>
#include <optional>
#include <sstream>

#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "benchmarks/train/train_program.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"

namespace cohort::bench {

namespace {

class TrainTrainee {
 public:
  virtual ~TrainTrainee() = default;
  virtual TrainParts step() = 0;
  virtual std::string verify() = 0;
};

// Returns this rank's batches, epoch after epoch, as `for (auto& batch : loader)` does.
template <class Dataset>
class TrainBatches {
 public:
  TrainBatches(Dataset dataset, const TrainRequest& request)
      : sampler_(std::make_shared<data::DistributedSampler>(dataset.size())),
        loader_(std::move(dataset), {.batch_size = request.batch_size,
                                     .sampler = sampler_,
                                     .num_workers = request.num_workers,
                                     .drop_last = true,
                                     .persistent_workers = request.num_workers > 0}) {}

  auto& next() {
    if (place_) ++*place_;
    if (!place_ || *place_ == std::default_sentinel) {
      place_.reset();
      sampler_->set_epoch(num_epochs_++);
      place_.emplace(loader_.begin());
    }
    return **place_;
  }

 private:
  std::shared_ptr<data::DistributedSampler> sampler_;
  data::DataLoader<Dataset> loader_;
  std::optional<data::BatchIterator<typename data::DataLoader<Dataset>::Batch>> place_;
  int64_t num_epochs_ = 0;
};

template <class Program>
using BatchesOf = TrainBatches<decltype(Program::make_dataset(TrainRequest{}))>;

template <class Program>
class LoopTrainee final : public TrainTrainee {
 public:
  explicit LoopTrainee(const TrainRequest& request) : batches_(Program::make_dataset(request), request) {}

  TrainParts step() override {
    TrainParts parts;
    TrainLap lap;
    auto& [input, target] = batches_.next();
    parts.data = lap();
    const at::Tensor loss = Program::loss(model_(input), target);
    parts.forward = lap();
    loss.backward();
    parts.backward = lap();
    optimizer_->step();
    optimizer_->zero_grad();
    loss_ = loss.template item<double>();
    parts.step = lap();
    return parts;
  }

  std::string verify() override {
    std::vector<double> losses;
    for (int i = 0; i < kTrainVerifiedSteps; ++i) {
      step();
      losses.push_back(loss_);
    }
    return train_sums(losses, net_->parameters());
  }

 private:
  using Net = typename Program::Net;
  BatchesOf<Program> batches_;
  Net net_ = make_train_net<Program>();
  DistributedDataParallel<typename Net::ContainedType> model_{net_};
  decltype(Program::make_optimizer(std::declval<Net&>())) optimizer_ = Program::make_optimizer(net_);
  double loss_ = 0;
};

template <class Program>
class FloorTrainee final : public TrainTrainee {
 public:
  explicit FloorTrainee(const TrainRequest& request)
      : batch_(BatchesOf<Program>(Program::make_dataset(request), request).next()) {
    all_reduce(at::zeros({1}));  // else the group warns that ranks train without communication
  }

  TrainParts step() override {
    net_->zero_grad();
    TrainParts parts;
    TrainLap lap;
    const at::Tensor loss = Program::loss(net_(std::get<0>(batch_)), std::get<1>(batch_));
    parts.forward = lap();
    loss.backward();
    parts.backward = lap();
    loss_ = loss.template item<double>();
    return parts;
  }

  std::string verify() override {
    step();
    return train_sums({loss_}, net_->parameters());
  }

 private:
  std::remove_reference_t<decltype(std::declval<BatchesOf<Program>&>().next())> batch_;
  typename Program::Net net_ = make_train_net<Program>();
  double loss_ = 0;
};

class TrainRank {
 public:
  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, name;
    words >> verb >> name;
    if (verb == "copy") {
      trainees_[name] = make(name == "floor", read_train_request(words));
      return "ok";
    }
    if (verb == "drop") {
      trainees_.clear();
      return "ok";
    }
    auto& trainee = *trainees_.at(name);
    if (verb == "verify") return trainee.verify();
    int num_warm = 0, num_steps = 0;
    words >> num_warm >> num_steps;
    for (int i = 0; i < num_warm; ++i) trainee.step();
    std::vector<TrainParts> steps;
    for (int i = 0; i < num_steps; ++i) steps.push_back(trainee.step());
    return train_answer(steps);
  }

 private:
  static std::unique_ptr<TrainTrainee> make(bool is_floor, const TrainRequest& request) {
    return with_train_program(request, [&](auto program) -> std::unique_ptr<TrainTrainee> {
      using Program = decltype(program);
      if (is_floor) return std::make_unique<FloorTrainee<Program>>(request);
      return std::make_unique<LoopTrainee<Program>>(request);
    });
  }

  std::map<std::string, std::unique_ptr<TrainTrainee>> trainees_;
};

}  // namespace

int run_train_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  init_process_group({.backend = arguments.at(0),
                      .init_method = arguments.at(3),
                      .world_size = 2,
                      .rank = std::stoi(arguments.at(1))});
  {
    TrainRank rank;
    serve_commands(arguments.at(2), [&](const std::string& command) { return rank.answer(command); });
  }
  destroy_process_group();
  return 0;
}

}  // namespace cohort::bench
