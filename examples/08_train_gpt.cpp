// Trains a byte-level GPT on any folder of text, on all ranks together. Without --data it reads the C++ headers of LibTorch.
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/train_gpt
//
// prints (rank 0) what it trains on, a progress line, the held-out loss from time to time and beside simpler models,
// then a text by the model and the checkpoint's name. `--resume` goes on after the last checkpoint as if the run had
// never stopped: with the same number of ranks every loss is the same to the last bit (two ranks; with more, Gloo may
// add in another order). Under `cohort run --max-restarts N` give --auto-resume: after a failure the restarted ranks go
// on by themselves (docs/guide/fault_tolerance.md). All flags: --help. One process without a launcher works too.
//
// Three parts: gpt/settings.h has the flags; gpt/strategy.h is how the ranks share the work, where each has the whole
// model (gpt/replicated.h) or, with --fsdp, a part of it (gpt/sharded.h); here is what does not depend on that: the
// text, the steps, the losses, the checkpoints.
#include <cohort/checkpoint/checkpointer/training_checkpoint.h>
#include <cohort/checkpoint/recovery/memory_snapshot.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/loader/distributed_sampler.h>
#include <cohort/models/ngram.h>
#include <cohort/parallel/optim/clip_grad.h>
#include <cohort/train/progress.h>
#include <cohort/train/schedule.h>
#include <cohort/train/text_split.h>
#include <sys/stat.h>
#include <torch/nn/functional/loss.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "gpt/replicated.h"
#include "gpt/settings.h"
#include "gpt/sharded.h"
#include "gpt/strategy.h"

namespace {
namespace F = torch::nn::functional;
using cohort::train::TextPart;
using gpt::GPT;
using gpt::Settings;

// An endless stream of this rank's batches that can start anywhere. Loaders have generators of their own: the default one
// belongs to dropout, which must draw the same numbers after a resume.
class Batches {
 public:
  Batches(const TextPart& part, const Settings& settings, int64_t first)
      : sampler_(std::make_shared<cohort::data::DistributedSampler>(
            part.size(), cohort::data::DistributedSamplerOptions{.seed = settings.seed, .drop_last = true})),
        loader_(part, {.batch_size = settings.batch_size,
                       .sampler = sampler_,
                       .drop_last = true,
                       .generator = cohort::data::make_generator(settings.seed)}),
        next_(first) {
    TORCH_CHECK_VALUE(loader_.size() > 0, "the text has only ", part.size(),
                      " windows to train on, fewer than one batch of ", settings.batch_size,
                      " per rank; give more text, or a smaller --batch-size or --context");
  }

  TextPart::Example next() {
    if (!epoch_ || next_ % loader_.size() == 0) {
      sampler_->set_epoch(next_ / loader_.size());
      epoch_.emplace(loader_.start(next_ % loader_.size()));
    }
    ++next_;
    return *epoch_->next();
  }

 private:
  std::shared_ptr<cohort::data::DistributedSampler> sampler_;
  cohort::data::DataLoader<TextPart> loader_;
  std::optional<cohort::data::Epoch<TextPart::Example>> epoch_;
  int64_t next_;
};

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
  return F::cross_entropy(logits.flatten(0, 1), targets.flatten());
}

// Mean loss over the part, each rank reading its share. All make as many passes as rank 0, whose share is the largest: forward
// may be collective.
double evaluate(gpt::Strategy& model, const TextPart& part) {
  const at::NoGradGuard no_grad;
  model.train(false);
  const cohort::data::DataLoaderOptions options{.batch_size = 32, .generator = cohort::data::make_generator(0)};
  const cohort::data::DataLoader<TextPart> loader(part.share(cohort::get_rank(), cohort::get_world_size()), options);
  const int64_t num_passes =
      cohort::data::DataLoader<TextPart>(part.share(0, cohort::get_world_size()), options).size();
  const at::Tensor sums = at::zeros({2}, at::kDouble);
  auto batches = loader.start();
  for (int64_t pass = 0; pass < num_passes; ++pass) {
    const auto batch = batches.next();
    const auto [inputs, targets] = batch ? *batch : part.get_batch({0});
    const at::Tensor logits = model.forward(inputs);
    if (!batch) continue;
    const auto count = static_cast<double>(targets.numel());
    sums[0] += loss_of(logits, targets).item<double>() * count;
    sums[1] += count;
  }
  cohort::all_reduce(sums);
  model.train(true);
  return sums[0].item<double>() / sums[1].item<double>();
}

// One JSON object per line, with every digit, for plots and for comparing runs.
class LossLog {
 public:
  LossLog(const std::string& path, bool append)
      : file_(path.empty() ? nullptr : std::fopen(path.c_str(), append ? "a" : "w")) {
    TORCH_CHECK_VALUE(path.empty() || file_, "cannot write the log \"", path, "\"");
  }
  ~LossLog() {
    if (file_) std::fclose(file_);
  }
  LossLog(const LossLog&) = delete;
  LossLog& operator=(const LossLog&) = delete;

  void write(int64_t step, const char* name, double value) {
    if (!file_) return;
    std::fprintf(file_, "{\"step\": %lld, \"%s\": %.17g}\n", static_cast<long long>(step), name, value);
    std::fflush(file_);
  }

 private:
  std::FILE* file_;
};

std::unique_ptr<gpt::Strategy> make_strategy(const Settings& settings) {
  if (settings.fsdp || settings.hsdp > 0) return std::make_unique<gpt::Sharded>(settings);
  return std::make_unique<gpt::Replicated>(settings);
}

class Trainer {
 public:
  Trainer(const Settings& settings, const cohort::train::TextSplit& text)
      : settings_(settings),
        text_(text),
        rank_(cohort::get_rank()),
        world_size_(cohort::get_world_size()),
        model_(make_strategy(settings)),
        is_resumed_(settings.resume || (settings.auto_resume && std::filesystem::exists(settings.checkpoint))) {
    if (settings.memory_snapshots > 0) {
      snapshot_.emplace(model_->snapshot_state(),
                        cohort::checkpoint::MemorySnapshotOptions{.every = settings.memory_snapshots});
      is_resumed_ = resume_from_memory() || is_resumed_;
    } else {
      resume_from_file();
    }
  }

  void train();
  void report();

 private:
  double run_step(Batches& batches);
  cohort::checkpoint::FileMetadata config() const;
  void save_checkpoint();
  int64_t step_of_checkpoint() const;
  void load_checkpoint();
  void resume_from_file();
  bool resume_from_memory();
  void load_random_state(const at::Tensor& states);
  void check_same_start() const;
  void print_sample(GPT net);

  Settings settings_;
  const cohort::train::TextSplit& text_;
  int rank_, world_size_;
  std::unique_ptr<gpt::Strategy> model_;
  bool is_resumed_;
  int64_t step_ = 0;
  std::optional<cohort::checkpoint::MemorySnapshot> snapshot_;
};

void Trainer::train() {
  const cohort::train::WarmupCosine schedule{.peak = settings_.learning_rate,
                                             .floor = settings_.min_learning_rate,
                                             .warmup_steps = settings_.warmup,
                                             .total_steps = settings_.steps};
  Batches batches(text_.train, settings_, step_ * settings_.accumulate);
  LossLog log(rank_ == 0 ? settings_.log : "", is_resumed_);
  cohort::train::ProgressLine progress(
      {.total_steps = settings_.steps, .first_step = step_, .unit = "tokens", .is_enabled = rank_ == 0});
  const int64_t first_step = step_;
  const int64_t last_step = settings_.stop_at > 0 ? std::min(settings_.stop_at, settings_.steps) : settings_.steps;
  const int64_t tokens_per_step = world_size_ * settings_.accumulate * settings_.batch_size * settings_.context;
  const auto is_due = [&](int64_t interval) { return interval > 0 && step_ % interval == 0; };
  while (step_ < last_step) {
    const double rate = schedule.at(step_);
    cohort::train::set_learning_rate(model_->optimizer(), rate);
    const double own_loss = run_step(batches);
    ++step_;
    if (snapshot_) snapshot_->step(step_);
    if (is_due(settings_.log_every) || step_ == last_step) {
      const at::Tensor loss = at::full({1}, own_loss, at::kDouble);
      cohort::all_reduce(loss, {.op = cohort::ReduceOp::SUM});
      const double mean = loss.item<double>() / world_size_;
      log.write(step_, "loss", mean);
      progress.update(step_, (step_ - first_step) * tokens_per_step, {{"loss", mean}, {"lr", rate}});
    }
    if (is_due(settings_.eval_every) && step_ < last_step) {
      const double held_out = evaluate(*model_, text_.held_out.evenly_spaced(settings_.eval_windows / 8));
      log.write(step_, "held_out", held_out);
      char line[96];
      std::snprintf(line, sizeof line, "step %lld  held-out loss %.4f", static_cast<long long>(step_), held_out);
      progress.print(line);
    }
    if (is_due(settings_.save_every) || step_ == last_step) save_checkpoint();
  }
}

double Trainer::run_step(Batches& batches) {
  double sum = 0.0;
  model_->optimizer().zero_grad();
  const auto pass = [&] {
    const auto [inputs, targets] = batches.next();
    const at::Tensor loss = loss_of(model_->forward(inputs), targets) / static_cast<double>(settings_.accumulate);
    loss.backward();
    sum += loss.item<double>();
  };
  for (int64_t i = 0; i + 1 < settings_.accumulate; ++i) model_->without_sync(pass);
  pass();
  if (settings_.clip > 0.0) cohort::nn::utils::clip_grad_norm_(model_->parameters(), settings_.clip);
  model_->optimizer().step();
  return sum;
}

// What must be equal for a run to go on as if it had never stopped.
cohort::checkpoint::FileMetadata Trainer::config() const {
  cohort::checkpoint::FileMetadata config;
  const std::pair<const char*, int64_t> numbers[] = {{"depth", settings_.depth},
                                                     {"width", settings_.width},
                                                     {"heads", settings_.heads},
                                                     {"context", settings_.context},
                                                     {"batch-size", settings_.batch_size},
                                                     {"accumulate", settings_.accumulate},
                                                     {"steps", settings_.steps},
                                                     {"warmup", settings_.warmup},
                                                     {"seed", settings_.seed},
                                                     {"training windows", text_.train.size()}};
  for (const auto& [name, value] : numbers) config[name] = std::to_string(value);
  return config;
}

// Collective: the state of every rank's random numbers goes into the one file that rank 0 writes.
void Trainer::save_checkpoint() {
  const at::Tensor own_state = cohort::checkpoint::rng_state();
  const at::Tensor states = at::empty({world_size_ * own_state.numel()}, own_state.options());
  cohort::all_gather_single(states, own_state);
  const GPT net = model_->whole_net();
  const auto optimizer = model_->whole_optimizer(net);
  if (rank_ != 0) return;
  cohort::checkpoint::TrainingProgress progress{.step = step_, .metadata = config()};
  progress.extra.insert("random_states", states.view({world_size_, -1}));
  cohort::checkpoint::save_checkpoint(settings_.checkpoint, *net, optimizer.get(), progress);
}

int64_t Trainer::step_of_checkpoint() const {
  const std::string& path = settings_.checkpoint;
  const std::string flag = settings_.resume ? "--resume" : "--auto-resume";
  TORCH_CHECK_VALUE(std::filesystem::exists(path), flag, ": there is no checkpoint \"", path,
                    "\"; start without --resume, or name it with --checkpoint");
  const cohort::checkpoint::FileMetadata metadata = cohort::checkpoint::load_metadata(path);
  for (const auto& [name, value] : config()) {
    const auto found = metadata.find(name);
    TORCH_CHECK_VALUE(found != metadata.end(), flag, ": \"", path, "\" is not a checkpoint of train_gpt: it has no ",
                      name);
    TORCH_CHECK_VALUE(found->second == value, flag, ": \"", path, "\" was made with ", name, " ", found->second,
                      ", this run has ", value, "; give the same flags and text");
  }
  return std::atoll(metadata.at("step").c_str());
}

// Collective, also where there is no file: another rank may see one.
void Trainer::resume_from_file() {
  if (is_resumed_) step_ = step_of_checkpoint();
  check_same_start();
  if (is_resumed_) load_checkpoint();
}

// Collective. The newest state in memory or, where there is none, the file. True if there was either.
bool Trainer::resume_from_memory() {
  const auto resumed = snapshot_->resume([this]() -> std::optional<int64_t> {
    resume_from_file();
    return is_resumed_ ? std::optional(step_) : std::nullopt;
  });
  step_ = resumed.step;
  const bool is_from_memory = resumed.from != cohort::checkpoint::ResumedFrom::kNothing &&
                              resumed.from != cohort::checkpoint::ResumedFrom::kDisk;
  if (is_from_memory && rank_ == 0) {
    std::printf("resuming at %s\n", resumed.describe().c_str());
    std::fflush(stdout);
  }
  return step_ > 0;
}

// Collective. The strategy decides who reads the file; rank 0 always does.
void Trainer::load_checkpoint() {
  cohort::checkpoint::TrainingProgress progress;
  model_->load([&](GPT& net, gpt::Optimizer& optimizer) {
    progress = cohort::checkpoint::load_checkpoint(settings_.checkpoint, *net, &optimizer,
                                                   cohort::checkpoint::RestoreRng::kNo);
  });
  load_random_state(rank_ == 0 ? progress.extra["random_states"] : at::Tensor());
  if (rank_ == 0) {
    std::printf("resuming %s at step %lld\n", settings_.checkpoint.c_str(), static_cast<long long>(step_));
    std::fflush(stdout);
  }
}

// Collective. `states`: on rank 0, a row for each rank of the run that was saved.
void Trainer::load_random_state(const at::Tensor& states) {
  const at::Tensor num_saved = at::full({1}, rank_ == 0 ? states.size(0) : 0, at::kLong);
  cohort::broadcast(num_saved, 0);
  if (num_saved.item<int64_t>() == world_size_) {
    const at::Tensor own = at::empty_like(cohort::checkpoint::rng_state());
    cohort::scatter(own, rank_ == 0 ? states.unbind() : cohort::TensorList());
    cohort::checkpoint::set_rng_state(own);
  } else if (rank_ == 0) {
    std::printf("note: the checkpoint was made by %lld ranks, this run has %d: it goes on, but not bit for bit\n",
                static_cast<long long>(states.size(0)), world_size_);
  }
}

// Collective. Ranks on hosts that do not share the checkpoint's folder would train from different weights, unnoticed.
void Trainer::check_same_start() const {
  const at::Tensor own = at::full({1}, step_, at::kLong);
  const at::Tensor steps = at::empty({world_size_}, at::kLong);
  cohort::all_gather_single(steps, own);
  const int64_t first = steps[0].item<int64_t>();
  for (int64_t rank = 1; rank < world_size_; ++rank) {
    const int64_t other = steps[rank].item<int64_t>();
    TORCH_CHECK_VALUE(other == first, "rank ", rank, " starts at step ", other, ", rank 0 at step ", first,
                      ": they read different files \"", settings_.checkpoint,
                      "\"; --checkpoint must name a file in a folder that all hosts share");
  }
}

double ngram_loss(int order, const cohort::train::TextSplit& text, const TextPart& held_out) {
  cohort::models::NgramModel model(order);
  for (const auto& stretch : text.train.stretches(/*history=*/0)) model.fit(stretch.text);
  double sum = 0.0;
  for (const auto& stretch : held_out.stretches(order - 1)) {
    sum += model.loss(stretch.text, stretch.first_target, stretch.text.size());
  }
  return sum / static_cast<double>(held_out.num_targets());
}

// Collective. The n-gram models see the same training bytes and predict the same held-out bytes, always with their full
// context; the GPT starts every window anew.
void Trainer::report() {
  const TextPart held_out = text_.held_out.evenly_spaced(settings_.eval_windows);
  const double loss = evaluate(*model_, held_out);
  const GPT net = model_->whole_net();
  if (rank_ == 0) {
    LossLog(settings_.log, /*append=*/true).write(step_, "final_held_out", loss);
    std::printf("\nheld-out loss in nats per byte, over %lld bytes of files that were not trained on\n",
                static_cast<long long>(held_out.num_targets()));
    std::printf("  unigram              %.4f\n", ngram_loss(1, text_, held_out));
    std::printf("  interpolated 4-gram  %.4f\n", ngram_loss(4, text_, held_out));
    std::printf("  this GPT             %.4f  (%.2f M parameters, %lld steps)\n", loss,
                static_cast<double>(net->num_parameters()) / 1e6, static_cast<long long>(step_));
    print_sample(net);
    std::printf("\ncheckpoint: %s\n", settings_.checkpoint.c_str());
  }
  cohort::barrier();
}

void Trainer::print_sample(GPT net) {
  const std::string& prompt = settings_.prompt;
  const at::Tensor tokens = at::empty({1, static_cast<int64_t>(prompt.size())}, at::kLong);
  for (size_t i = 0; i < prompt.size(); ++i) tokens[0][static_cast<int64_t>(i)] = static_cast<unsigned char>(prompt[i]);
  const at::Tensor text = net->generate(tokens, {.max_new_tokens = settings_.sample_bytes,
                                                 .temperature = settings_.temperature,
                                                 .generator = cohort::data::make_generator(settings_.seed)});
  const at::Tensor bytes = text[0].to(at::kByte).contiguous();
  std::string printable(reinterpret_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel()));
  for (char& c : printable) {
    if (c != '\n' && c != '\t' && (c < ' ' || c > '~')) c = '?';
  }
  std::printf("\na text by the model, after the prompt (%zu bytes)\n----\n%s\n----\n", prompt.size(),
              printable.c_str());
}

void run(const Settings& settings) {
  if (std::getenv("WORLD_SIZE")) {
    cohort::init_process_group();
  } else {
    cohort::init_process_group({.world_size = 1, .rank = 0, .store = c10::make_intrusive<c10d::HashStore>()});
  }
  gpt::check_settings(settings, cohort::get_world_size());
  const auto corpus = cohort::data::TextCorpus::open(settings.data);
  const cohort::train::TextSplit text = cohort::train::split_text(corpus, settings.context, settings.held_out);
  if (cohort::get_rank() == 0) {
    std::printf("%lld text files in %s, %lld of them copies: %.1f MB to train on, %.1f MB held out\n",
                static_cast<long long>(text.num_files), settings.data.c_str(),
                static_cast<long long>(text.num_duplicates), static_cast<double>(text.train.num_targets()) / 1e6,
                static_cast<double>(text.held_out.num_targets()) / 1e6);
    std::fflush(stdout);
  }
  Trainer trainer(settings, text);
  trainer.train();
  if (settings.stop_at == 0 || settings.stop_at >= settings.steps) trainer.report();
  cohort::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Trains a byte-level GPT on a folder of text.");
  gpt::add_flags(app, settings);
  CLI11_PARSE(app, argc, argv);
  ::umask(0077);  // the checkpoint is for its owner alone
  try {
    run(settings);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "train_gpt: error: %s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_gpt: error: %s\n", error.what());
    return 1;
  }
}
