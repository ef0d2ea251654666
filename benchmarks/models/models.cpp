// models: a training step of a ResNet in one process, contiguous, channels-last, and channels-last with autocast to bfloat16,
// beside torchvision's and timm's in Python; and the time to make a model, and to make it with the weights of a file.
//
// Python's process has the same weights, drawn from the same seed, and the same images (models_rank.py). In each round every side
// takes a step while the others sleep. Losses and gradients are compared before anything is timed. All sides have one thread.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <fmt/core.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turn_order.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"
#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/extras/models/channels_last.h"
#include "cohort/extras/models/resnet.h"
#include "cohort/models/pretrained.h"

namespace cohort::bench {
namespace {

struct ModelCase {
  const char* name;
  models::ResNet (*make)(models::ResNetOptions);
  int64_t batch_size;
  int64_t image_size;
};
constexpr ModelCase kModelCases[] = {{"resnet18", models::resnet18, 16, 64}, {"resnet50d", models::resnet50d, 8, 64}};
const std::vector<std::string> kModelVariants{"contiguous", "channels-last", "bfloat16"};
constexpr int kModelRounds = 20;
constexpr int kQuickModelRounds = 3;
constexpr uint64_t kModelSeed = 7;

double milliseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// While it lives, operators may work in bfloat16.
class Bfloat16Scope {
 public:
  Bfloat16Scope() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Bfloat16Scope() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
};

class ModelTraining {
 public:
  ModelTraining(const ModelCase& what, const std::string& variant)
      : net_(seeded(what)), is_bfloat16_(variant == "bfloat16") {
    images_ = at::randn({what.batch_size, 3, what.image_size, what.image_size});
    labels_ = at::randint(10, {what.batch_size}, at::kLong);
    if (variant != kModelVariants.front()) {
      models::to_channels_last(*net_);
      images_ = images_.contiguous(at::MemoryFormat::ChannelsLast);
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(net_->parameters(), 1e-4);
  }

  double time_step() {
    return milliseconds_of([this] { step(); });
  }

  // Returns the first step's loss and the sum of its gradients' squares.
  std::string verify() {
    const double loss = step();
    double squares = 0;
    for (const auto& parameter : net_->parameters())
      squares += parameter.grad().square().sum(at::kDouble).item<double>();
    return fmt::format("{:.10g} {:.10g}", loss, squares);
  }

 private:
  static models::ResNet seeded(const ModelCase& what) {
    torch::manual_seed(kModelSeed);
    // timm's models begin with zeros, which would give half of the network no gradient, and no comparison.
    return what.make({.num_classes = 10, .zero_init_last = false});
  }

  double step() {
    optimizer_->zero_grad();
    at::Tensor loss;
    {
      std::optional<Bfloat16Scope> autocast;
      if (is_bfloat16_) autocast.emplace();
      loss = torch::nn::functional::cross_entropy(net_(images_), labels_);
    }
    loss.backward();
    optimizer_->step();
    return loss.item<double>();
  }

  models::ResNet net_;
  bool is_bfloat16_;
  at::Tensor images_;
  at::Tensor labels_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
};

struct ModelSide {
  std::function<std::string()> verify;
  std::function<double()> time;
};

ModelSide our_training(const ModelCase& what, const std::string& variant) {
  const auto training = std::make_shared<ModelTraining>(what, variant);
  return {[training] { return training->verify(); }, [training] { return training->time_step(); }};
}

ModelSide pythons_training(Team& python, const ModelCase& what, const std::string& variant) {
  python.ask(fmt::format("copy {} {} {} {}", variant, what.name, what.batch_size, what.image_size));
  return {[&python, variant] { return python.ask("verify " + variant).front(); },
          [&python, variant] { return python.ask_number("run " + variant + " 0 1"); }};
}

// Python's sides agree with ours to the last digits; different layouts and dtypes agree only approximately.
void check_same(const ModelCase& what, std::vector<ModelSide>& sides) {
  const size_t num_variants = kModelVariants.size();
  std::vector<std::string> answers;
  for (size_t i = 0; i < sides.size(); ++i) {
    answers.push_back(sides[i].verify());
    const bool is_ours = i < num_variants;
    const std::string& expected = answers[is_ours ? 0 : i - num_variants];
    if (agree(answers[i], expected, is_ours ? 0.1 : 1e-3)) continue;
    throw std::runtime_error(fmt::format("{}: loss and gradients are {} for {}{}, and {} for {}", what.name, answers[i],
                                         is_ours ? "" : "Python's ", kModelVariants[i % num_variants], expected,
                                         is_ours ? kModelVariants.front() : "ours"));
  }
}

Row model_row(const std::vector<double>& ours, const std::vector<double>* rival) {
  Row row;
  if (rival) {
    row = compare_times(ours, *rival);
  } else {
    row.ours = median(ours);
    row.note = "there is no Python with PyTorch in .venv";
  }
  row.unit = "ms";
  return row;
}

std::vector<Row> measure_steps(const ModelCase& what, Team* python, int num_rounds) {
  std::vector<ModelSide> sides;
  for (const auto& variant : kModelVariants) sides.push_back(our_training(what, variant));
  for (size_t i = 0; python && i < kModelVariants.size(); ++i) {
    sides.push_back(pythons_training(*python, what, kModelVariants[i]));
  }
  check_same(what, sides);
  std::vector<std::function<double()>> steps;
  for (const auto& side : sides) steps.push_back(side.time);
  const auto times = measure_in_turns(steps, num_rounds);
  std::vector<Row> rows;
  const auto add = [&](size_t side, const std::vector<double>* rival, const std::string& rival_name) {
    Row row = model_row(times[side], rival);
    row.case_name = fmt::format("{}/{}x{}/{}", what.name, what.batch_size, what.image_size, kModelVariants[side]);
    row.rival_name = rival_name;
    if (row.note.empty())
      row.note = fmt::format("{:.0f} images/s", 1e3 * static_cast<double>(what.batch_size) / *row.ours);
    rows.push_back(std::move(row));
  };
  for (size_t i = 0; i < kModelVariants.size(); ++i) {
    add(i, python ? &times[kModelVariants.size() + i] : nullptr, "python");
    if (i > 0) add(i, &times[0], kModelVariants.front());
  }
  if (python) python->ask("drop");
  return rows;
}

// Measures the time to make a model.
std::vector<Row> measure_making(Team* python, const std::string& folder, int num_rounds) {
  const auto make = [] { return models::resnet50d(); };
  const std::string path = folder + "/resnet50d.safetensors";
  checkpoint::save_file(checkpoint::state_dict(*make()), path);
  // Does not time freeing it.
  const auto time_making = [](const std::function<models::ResNet()>& make_one) {
    models::ResNet made{nullptr};
    return milliseconds_of([&] { made = make_one(); });
  };
  std::vector<std::function<double()>> sides = {
      [&] { return time_making(make); },
      [&] { return time_making([&] { return models::load_pretrained_model(make, path); }); }};
  const std::vector<std::string> names = {"made", "pretrained"};
  for (const auto& name : names) {
    if (!python) continue;
    python->ask(fmt::format("copy {} {}", name, path));
    sides.emplace_back([python, name] { return python->ask_number("run " + name + " 0 1"); });
  }
  const auto times = measure_in_turns(sides, num_rounds);
  std::vector<Row> rows;
  for (size_t i = 0; i < names.size(); ++i) {
    Row row = model_row(times[i], python ? &times[names.size() + i] : nullptr);
    row.case_name = "resnet50d/" + names[i];
    row.rival_name = "python";
    rows.push_back(std::move(row));
  }
  if (python) python->ask("drop");
  return rows;
}

}  // namespace

std::vector<Row> run_models(const Settings& settings) {
  std::vector<std::string> names = {"making"};
  for (const auto& what : kModelCases) names.emplace_back(what.name);
  check_case(settings.only_case, names);
  const auto is_wanted = [&](const std::string& name) {
    return settings.only_case.empty() || settings.only_case == name;
  };
  at::set_num_threads(1);
  const ScratchFolder folder;
  std::unique_ptr<Team> python;
  if (const auto program = find_python(); !program.empty()) {
    python = std::make_unique<Team>(
        TeamOptions{.name = "python",
                    .folder = folder.path(),
                    .num_ranks = 1,
                    .command = {program, std::string(kSourceDir) + "/benchmarks/models/models_rank.py"}});
  }
  const int num_rounds = settings.rounds(kModelRounds, kQuickModelRounds);
  std::vector<Row> rows;
  for (const auto& what : kModelCases) {
    if (!is_wanted(what.name)) continue;
    for (Row& row : measure_steps(what, python.get(), num_rounds)) rows.push_back(std::move(row));
  }
  if (is_wanted("making")) {
    for (Row& row : measure_making(python.get(), folder.path(), num_rounds)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace cohort::bench
