// A rank of `train` whose loop is a Trainer's. The commands are those of train_rank.cpp, for the trainee "trainer". During a
// block the Trainer continues from step to step; between blocks it waits in a callback for the next command.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <fstream>
#include <sstream>

#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "benchmarks/train/train_program.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/train/trainer/callback.h"
#include "cohort/train/trainer/trainer.h"

namespace cohort::bench {
namespace {

class ServingCallback final : public train::Callback {
 public:
  explicit ServingCallback(std::ifstream& commands) : commands_(commands) {}

  void on_fit_start(train::Trainer& trainer) override {
    answer("ok");
    wait_for_command(trainer);
  }

  void on_train_batch_end(train::Trainer& trainer, const train::StepReport& report) override {
    if (num_verified_ > 0) {
      losses_.push_back(report.loss.item<double>());
      if (--num_verified_ > 0) return;
      return finish(trainer, train_sums(losses_, trainer.strategy().net().parameters()));
    }
    if (--num_left_ < num_steps_) steps_.push_back(parts_of_step(trainer));
    lap_();
    before_ = trainer.times();
    if (num_left_ == 0) finish(trainer, train_answer(steps_));
  }

 private:
  static void answer(const std::string& text) { send_to_standard_output("= " + text + "\n"); }
  void finish(train::Trainer& trainer, const std::string& text) {
    answer(text);
    wait_for_command(trainer);
  }

  void wait_for_command(train::Trainer& trainer) {
    std::string line, verb, name;
    if (!std::getline(commands_, line)) line = "drop";
    std::istringstream words(line);
    words >> verb >> name;
    steps_.clear();
    losses_.clear();
    num_verified_ = num_left_ = 0;
    if (verb == "verify") {
      num_verified_ = kTrainVerifiedSteps;
    } else if (verb == "run") {
      int num_warm = 0;
      words >> num_warm >> num_steps_;
      num_left_ = num_warm + num_steps_;
    } else {
      trainer.stop(line);
    }
    lap_();
    before_ = trainer.times();
  }

  // The Trainer's other work counts as its step.
  TrainParts parts_of_step(const train::Trainer& trainer) {
    using train::StepPart;
    const auto times = trainer.times() - before_;
    const auto milliseconds = [&](StepPart part) {
      return std::chrono::duration<double, std::milli>(times[part]).count();
    };
    TrainParts parts{.data = milliseconds(StepPart::kData),
                     .forward = milliseconds(StepPart::kForward),
                     .backward = milliseconds(StepPart::kBackward) + milliseconds(StepPart::kCommunication)};
    parts.step = lap_() - parts.data - parts.forward - parts.backward;
    return parts;
  }

  std::ifstream& commands_;
  int num_verified_ = 0;
  int num_steps_ = 0;
  int num_left_ = 0;
  TrainLap lap_;
  train::StepTimes before_;
  std::vector<TrainParts> steps_;
  std::vector<double> losses_;
};

// Runs until the controller drops it.
void fit_served(const TrainRequest& request, std::ifstream& commands) {
  with_train_program(request, [&](auto program) {
    using Program = decltype(program);
    auto net = make_train_net<Program>();
    const auto optimizer = Program::make_optimizer(net);
    const data::DataLoader loader(Program::make_dataset(request), {.batch_size = request.batch_size,
                                                                   .shuffle = true,
                                                                   .num_workers = request.num_workers,
                                                                   .drop_last = true,
                                                                   .persistent_workers = request.num_workers > 0});
    train::Task<typename Program::Net> task{.model = net, .loss = Program::loss, .optimizer = optimizer.get()};
    train::Trainer trainer(
        {.max_epochs = 1'000'000, .callbacks = {std::make_shared<ServingCallback>(commands)}, .progress = false});
    trainer.fit(task, loader);
  });
}

}  // namespace

int run_trainer_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  init_process_group({.backend = arguments.at(0),
                      .init_method = arguments.at(3),
                      .world_size = 2,
                      .rank = std::stoi(arguments.at(1))});
  std::ifstream commands(arguments.at(2));
  for (std::string line; std::getline(commands, line) && line != "quit";) {
    std::istringstream words(line);
    std::string verb, name;
    words >> verb >> name;
    if (verb == "copy") fit_served(read_train_request(words), commands);
    send_to_standard_output("= ok\n");
  }
  destroy_process_group();
  return 0;
}

}  // namespace cohort::bench
