// Trains a byte-level GPT on any folder of text, on all ranks together. Without --data it reads the C++ headers of LibTorch.
//
//   build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/train_gpt
//
// prints (rank 0) the size of the text, a progress line, from time to time the held-out loss, and at the end this loss beside
// those of simpler models and a text by the model. `--resume` continues from the last checkpoint as if the run had never stopped:
// with the same number of ranks every loss has the same bits (with two ranks; with more, Gloo may add in another order). Under
// `cohort run --max-restarts N` add --auto-resume: after a failure the restarted ranks resume by themselves
// (docs/guide/fault_tolerance.md). --help lists all flags. It also runs as one process without a launcher. gpt/settings.h has the
// flags, gpt/report.h the report at the end.
#include <cohort/checkpoint/checkpointer/checkpointer.h>
#include <cohort/checkpoint/sharded/sharded_checkpoint.h>
#include <cohort/checkpoint/state/distributed_state.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/models/gpt.h>
#include <cohort/models/gpt_stage.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/parallel/zero/zero_redundancy_optimizer.h>
#include <cohort/train/optim/lr_scheduler.h>
#include <cohort/train/run/seed_everything.h>
#include <cohort/train/strategy/pipeline_step.h>
#include <cohort/train/text_split.h>
#include <cohort/train/trainer/trainer.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/parallelize.h"
#include "gpt/report.h"
#include "gpt/settings.h"

namespace {
namespace train = cohort::train;
using cohort::data::DataLoader;
using cohort::models::GPT;
using cohort::models::GPTStage;
using gpt::Settings;
using torch::optim::AdamWOptions;

constexpr int64_t kRowsOfTests = 32;

GPT make_net(const Settings& s) {
  return GPT(cohort::models::GPTOptions{.block_size = s.context,
                                        .n_layer = s.depth,
                                        .n_head = s.heads,
                                        .n_embd = s.width,
                                        .dropout = s.dropout,
                                        .tie_weights = s.tie_weights});
}

// Applies weight decay only to matrices.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Settings& s, const std::vector<at::Tensor>& parameters) {
  const AdamWOptions options = AdamWOptions(s.lr).betas({0.9, 0.95}).weight_decay(s.weight_decay);
  const auto [decayed, rest] = cohort::models::decay_groups(parameters);
  std::vector<torch::optim::OptimizerParamGroup> groups{
      {decayed, std::make_unique<AdamWOptions>(options)},
      {rest, std::make_unique<AdamWOptions>(AdamWOptions(options).weight_decay(0.0))}};
  const auto make = [options](auto own) { return std::make_unique<cohort::optim::AdamW>(std::move(own), options); };
  if (!s.zero) return make(std::move(groups));
  return std::make_unique<cohort::ZeroRedundancyOptimizer>(groups, make,
                                                           cohort::ZeroOptions{.parameters_as_bucket_view = true});
}

// Warms up, then follows half a cosine.
cohort::optim::SequentialLR make_schedule(const Settings& s, torch::optim::Optimizer& optimizer) {
  const double first = 1.0 / static_cast<double>(s.warmup);
  return {optimizer,
          {std::make_shared<cohort::optim::LinearLR>(optimizer, first, 1.0, s.warmup),
           std::make_shared<cohort::optim::CosineAnnealingLR>(optimizer, std::max<int64_t>(1, s.steps - s.warmup),
                                                              s.min_lr)},
          {s.warmup}};
}

using Batch = std::pair<at::Tensor, at::Tensor>;

struct Language {
  GPT model;
  torch::optim::Optimizer* optimizer;
  std::vector<train::Schedule> schedulers;
  std::optional<cohort::DeviceMesh> mesh;

  at::Tensor step(cohort::models::GPTImpl& net, Batch& batch) {
    return gpt::loss_of(net, batch.first, batch.second, mesh);
  }
};

// The task of a model in stages.
struct StagedLanguage {
  std::shared_ptr<torch::nn::Module> model;
  torch::optim::Optimizer* optimizer;
  std::vector<train::Schedule> schedulers;
  std::optional<cohort::DeviceMesh> mesh;
  GPTStage first_stage;  ///< of this rank
  cohort::PipelineSchedule* pipeline;

  // The same number for each microbatch.
  int64_t num_rows_of_tests() const {
    const int64_t num_parts = pipeline->num_microbatches();
    return (kRowsOfTests + num_parts - 1) / num_parts * num_parts;
  }
  train::StepOutput step(torch::nn::Module&, Batch& batch) {
    auto [tokens, targets] = batch;
    const auto scope = gpt::share_positions(mesh, tokens, targets, first_stage->positions);
    return train::pipeline_step(*pipeline, tokens, targets);
  }
  train::StepOutput evaluate(torch::nn::Module&, Batch& batch) {
    auto [tokens, targets] = batch;  // copies, as the last batch may come again
    const auto scope = gpt::share_positions(mesh, tokens, targets, first_stage->positions);
    const auto loss = [](const at::Tensor& logits, const at::Tensor& targets) {
      return gpt::whole(gpt::loss_of_logits(logits, targets));
    };
    return train::pipeline_evaluation(*pipeline, tokens, targets, loss, num_rows_of_tests());
  }
};

// Returns the unsharded model of the newest checkpoint.
GPT trained(const Settings& s, const std::string& folder) {
  GPT net = make_net(s);
  cohort::checkpoint::ShardedStateDict weights;
  for (const auto& item : cohort::checkpoint::get_model_state_dict(*net)) {
    weights.insert("model." + item.key(), item.value());
  }
  cohort::checkpoint::load_sharded(weights, folder, {.no_dist = true});
  return net;
}

template <class Task>
void train_and_report(const Settings& s, train::Trainer& trainer, Task task, const train::TextSplit& text) {
  const DataLoader windows(text.train, {.batch_size = s.batch_size, .shuffle = true, .drop_last = true});
  const auto held_out = text.held_out.evenly_spaced(s.eval_windows);
  gpt::check_tests(s, held_out.size(), trainer.world_size());
  const auto some = text.held_out.evenly_spaced(std::max<int64_t>(1, s.eval_windows / 8));
  if (trainer.fit(task, windows, DataLoader(some, {.batch_size = kRowsOfTests})).steps < s.steps) return;
  const double loss = trainer.test(task, DataLoader(held_out, {.batch_size = kRowsOfTests})).front().second;
  const auto saved = cohort::checkpoint::Checkpointer(s.checkpoint).latest();
  if (trainer.is_first_rank()) {
    GPT whole = trained(s, saved->folder);
    gpt::report(whole, loss, text.train, held_out, s);
  }
  cohort::barrier();
}

void run(const Settings& s) {
  const auto text = train::split_text(cohort::data::TextCorpus::open(s.data), s.context, s.held_out);
  train::seed_everything(s.seed);  // the same weights on every rank
  GPT net = make_net(s);
  train::Trainer trainer(gpt::trainer_options(s, text.train.size()));
  if (trainer.is_first_rank()) {
    std::printf("%ld text files in %s, %ld of them copies: %.1f MB to train on, %.1f MB held out\n", text.num_files,
                s.data.c_str(), text.num_duplicates, static_cast<double>(text.train.num_targets()) / 1e6,
                static_cast<double>(text.held_out.num_targets()) / 1e6);
    std::fflush(stdout);  // training does not print through stdio
  }
  const auto pipeline = gpt::parallelize(net, {.mesh = trainer.mesh(),
                                               .activation_checkpointing = s.activation_checkpointing,
                                               .fsdp = trainer.options().strategy.fsdp,
                                               .pp_schedule = s.pp_schedule,
                                               .pp_stages_per_rank = s.pp_stages_per_rank,
                                               .pp_microbatches = s.pp_microbatches});
  const auto optimizer = make_optimizer(s, pipeline ? pipeline->parameters : net->parameters());
  auto schedule = make_schedule(s, *optimizer);
  const std::vector schedulers{train::every_step(schedule)};
  if (pipeline) {
    train_and_report(s, trainer,
                     StagedLanguage{pipeline->model, optimizer.get(), schedulers, trainer.mesh(),
                                    pipeline->stages.front(), pipeline->schedule.get()},
                     text);
  } else {
    train_and_report(s, trainer, Language{net, optimizer.get(), schedulers, trainer.mesh()}, text);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  train::RunConfig config("train_gpt", "Trains a byte-level GPT on a folder of text.");
  gpt::add_options(config, settings);
  config.parse_or_exit(argc, argv);
  try {
    gpt::check(settings);
    run(settings);
  } catch (const std::exception& error) {
    return config.report(error);
  }
}
