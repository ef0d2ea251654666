// cohort-bench: `cohort-bench <question> [--quick] [--json FILE]`, or all questions one after the other.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "benchmarks/support/hardware.h"
#include "benchmarks/support/question.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/elastic/plan/worker_allocator.h"

namespace cohort::bench {
namespace {

constexpr int kUsageError = 2;

constexpr Question kQuestions[] = {
    {"collectives", "all collectives between ranks of one machine, beside Gloo, OpenMPI and the memory's limit",
     run_collectives, print_collectives},
    {"allocator", "a training step of one process on the shared allocator, beside glibc, tcmalloc and jemalloc",
     run_allocator},
    {"queued", "asynchronous operations, alone and beside computation, beside the same ones synchronously", run_queued},
    {"ddp-step", "a training step on 2 ranks, beside c10d::Reducer, Gloo, Python's DDP and no DDP", run_ddp_step},
    {"fused-step", "AdamW inside of DDP's reduction on 2 ranks, beside LibTorch's step after it", run_fused_step},
    {"optimizer", "AdamW, Adam and SGD on 25 M parameters, beside LibTorch's and Python's, foreach and fused",
     run_optimizer},
    {"fsdp-step", "fully_shard's training step, beside ranks that do not communicate, our DDP and Python's FSDP2",
     run_fsdp_step},
    {"pipeline", "the time that pipeline schedules lose, beside theory, and sending an activation, beside Gloo",
     run_pipeline},
    {"activation-checkpointing",
     "a GPT's step with checkpoints or SaveOnCpu and its memory, beside the plain one and Python",
     run_activation_checkpointing},
    {"dataloader",
     "batches of a DataLoader with transforms, from a CIFAR-like dataset and a folder of JPEGs, beside Python's",
     run_dataloader},
    {"checkpoint", "saving and loading, alone and on 2 ranks, beside torch.save, torch.load and Python's DCP",
     run_checkpoint},
    {"models", "a training step of ResNets in one process, and making a model, beside torchvision and timm",
     run_models},
    {"train", "whole training programs on 2 ranks, ResNet-18 and a GPT, beside Python's DDP on Gloo and DataLoader",
     run_train},
    {"data-parallel", "DataParallel's two replicas on the CPU, beside one", run_data_parallel},
    {"ddp-overhead", "the reducer's cost per step and parameter on one rank", run_ddp_overhead},
    {"dtensor-overhead", "the cost of an operation on DTensors above the same one on their shards",
     run_dtensor_overhead},
    {"python", "Python's DDP, FSDP2 and tensor parallelism on 2 ranks, beside Gloo and no communication", run_python,
     print_python},
    {"tensor-parallel",
     "a step of a transformer block that 2 ranks compute together, beside Python's on cohort and Gloo, and one process",
     run_tensor_parallel},
    {"compile-time", "compiling a user's first DDP program, beside a budget", run_compile_time},
    {"launch", "workers that do nothing, from the launcher's start to their end, and its memory, beside torchrun",
     run_launch},
    {"recovery", "from a worker's crash to its successors' start, and to their first collective, beside torchrun",
     run_recovery},
    {"store", "operations per second of the TCP store's server, beside LibTorch's", run_store},
    {"rendezvous", "10, 100 and 1,000 agents that meet through one store, beside torchrun's", run_rendezvous},
};

struct Request {
  std::string question;
  std::string json_file;
  std::string json_folder;
};

std::string question_list() {
  std::string text = "Questions:\n";
  for (const auto& question : kQuestions) text += fmt::format("  {:<14} {}\n", question.name, question.summary);
  return text + "  all            all of these";
}

std::vector<const Question*> questions_named(const std::string& name) {
  std::vector<const Question*> result;
  for (const auto& question : kQuestions) {
    if (name == "all" || name == question.name) result.push_back(&question);
  }
  return result;
}

int unknown_question(const std::string& name) {
  std::vector<std::string> names{"all"};
  for (const auto& question : kQuestions) names.emplace_back(question.name);
  fmt::print(stderr, "cohort-bench: there is no question \"{}\"{}\n{}\n", name, base::did_you_mean(name, names),
             question_list());
  return kUsageError;
}

int answer(const Request& request, const Settings& settings) {
  print_hardware();
  std::vector<Row> all;
  int status = 0;
  for (const Question* question : questions_named(request.question)) {
    fmt::print("{}: {}{}\n", question->name, question->summary, settings.is_quick ? " (quick)" : "");
    std::fflush(stdout);
    try {
      auto rows = question->run(settings);
      for (Row& row : rows) row.question = question->name;
      (question->print ? question->print : print_table)(rows);
      if (!request.json_folder.empty()) write_json(rows, request.json_folder + "/" + question->name + ".json");
      all.insert(all.end(), rows.begin(), rows.end());
    } catch (const std::exception& error) {
      fmt::print(stderr, "cohort-bench: {}: {}\n\n", question->name, error.what());
      status = 1;
    }
  }
  if (!request.json_file.empty()) write_json(all, request.json_file);
  return status;
}

// Sets variables that all programs started from here on inherit.
base::Result<void> apply_allocator(const std::string& name) {
  const auto environment = base::environment();
  const auto variables = elastic::allocator_variables(name, environment, elastic::library_folders(environment));
  if (!variables) return variables.error();
  for (const auto& [variable, value] : *variables) base::set_env(variable.c_str(), value);
  return {};
}

int run(int argc, char** argv) {
  CLI::App app("Benchmarks of Cohort, each beside its rivals", "cohort-bench");
  app.footer(question_list());
  Request request;
  Settings settings;
  app.add_option("question", request.question, "Question to answer, or all")->required();
  app.add_flag("--quick", settings.is_quick, "Under 45 s per question, with fewer repetitions");
  app.add_option("--rounds", settings.num_rounds,
                 "launch, recovery, store, rendezvous, dataloader, checkpoint, optimizer, models, pipeline, train, "
                 "tensor-parallel: number of measurements of each side")
      ->check(CLI::PositiveNumber);
  app.add_option(
      "--case", settings.only_case,
      "ddp-step, fsdp-step, python, allocator, dataloader, checkpoint, optimizer, models, pipeline, train: only this "
      "case, such as resnet18");
  app.add_option("--op", settings.ops, "collectives: only these, such as all_reduce,broadcast")->delimiter(',');
  app.add_option("--size", settings.sizes, "collectives: only these, such as 4KiB,64MiB; any size is possible")
      ->delimiter(',');
  app.add_option("--dtype", settings.dtypes, "collectives: only these, such as float32,bfloat16")->delimiter(',');
  app.add_option("--ranks", settings.ranks, "collectives: only these numbers of ranks, such as 2,4")->delimiter(',');
  app.add_option("--backend", settings.backend, "collectives, ddp-step: backend to measure")->capture_default_str();
  app.add_option(
         "--optimizer", settings.optimizer,
         "fsdp-step: libtorch (its AdamW) or fused (ours; Python's with fused=True), for all ranks of all sides")
      ->check(CLI::IsMember({"libtorch", "fused"}))
      ->capture_default_str();
  app.add_option("--allocator", settings.allocator,
                 "ddp-step, python, train: default, shared, tcmalloc or jemalloc, for all ranks of all sides")
      ->capture_default_str();
  app.add_option("--json", request.json_file, "Write all rows to this file");
  app.add_option("--json-dir", request.json_folder, "Write one file per question into this folder")
      ->check(CLI::ExistingDirectory);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  if (questions_named(request.question).empty()) return unknown_question(request.question);
  if (const auto applied = apply_allocator(settings.allocator); !applied) {
    fmt::print(stderr, "cohort-bench: {}\n", applied.error().describe());
    return kUsageError;
  }
  settings.program = std::filesystem::read_symlink("/proc/self/exe").string();
  settings.program_folder = std::filesystem::path(settings.program).parent_path().string();
  return answer(request, settings);
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (!arguments.empty() && arguments.front() == cohort::bench::kDdpStepRank) {
      return cohort::bench::run_ddp_step_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kFsdpStepRank) {
      return cohort::bench::run_fsdp_step_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kPipelineRank) {
      return cohort::bench::run_pipeline_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kAllocatorRank) {
      return cohort::bench::run_allocator_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kDataloaderRank) {
      return cohort::bench::run_dataloader_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kCheckpointRank) {
      return cohort::bench::run_checkpoint_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kOptimizerRank) {
      return cohort::bench::run_optimizer_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kCollectivesRank) {
      return cohort::bench::run_collectives_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kTrainRank) {
      return cohort::bench::run_train_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kTrainerRank) {
      return cohort::bench::run_trainer_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kTensorParallelRank) {
      return cohort::bench::run_tensor_parallel_rank({arguments.begin() + 1, arguments.end()});
    }
    if (!arguments.empty() && arguments.front() == cohort::bench::kQueuedRank) {
      return cohort::bench::run_queued_rank({arguments.begin() + 1, arguments.end()});
    }
    if (arguments == std::vector<std::string>{cohort::bench::kTorchStoreServer})
      return cohort::bench::run_torch_store_server();
    return cohort::bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cohort-bench: {}\n", error.what());
    return 1;
  }
}
