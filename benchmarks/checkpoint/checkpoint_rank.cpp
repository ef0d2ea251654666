// A rank of our side of `checkpoint`. Commands: "copy NAME KIND MEBIBYTES FOLDER" makes a state of tensors of 4 MiB, and a
// checkpoint if the kind loads one; "verify NAME" answers with the number of tensors; "run NAME WARM STEPS" with the milliseconds
// per step; "drop" frees all.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <malloc.h>
#include <sys/mman.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/checkpoint/sharded/async_save.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/mesh/device_mesh.h"

namespace cohort::bench {
namespace {

using std::chrono::steady_clock;
constexpr int64_t kRows = 1024;
constexpr int64_t kMebibytesOfTensor = 4;
constexpr int kLeastMapped = 128 << 10;

class CheckpointCase {
 public:
  CheckpointCase(std::string kind, int mebibytes, const std::string& folder)
      : kind_(std::move(kind)), mebibytes_(mebibytes), path_(folder + "/" + kind_), sync_(kind_.ends_with("-fsync")) {
    for (int i = 0; i < mebibytes / kMebibytesOfTensor; ++i) {
      const std::string name = fmt::format("layer.{}.weight", i);
      if (is_initialized()) {
        const int64_t world_size = get_world_size();
        const mesh::ShardSpec spec(init_device_mesh("cpu", {world_size}), {Shard(0)}, {kRows, kRows}, at::kFloat);
        state_.insert(name, {at::full({kRows / world_size, kRows}, i, at::kFloat), spec});
      } else {
        state_.insert(name, at::full({kRows, kRows}, i, at::kFloat));
        tensors_.insert(name, state_[name].tensor);
      }
    }
    if (loads()) save();
  }

  size_t num_tensors() const { return state_.size(); }

  double run(int num_warm, int num_steps) {
    double sum = 0;
    for (int step = 0; step < num_warm + num_steps; ++step) {
      prepare();
      const double milliseconds = this->step();
      if (step >= num_warm) sum += milliseconds;
      clean();
    }
    return sum / num_steps;
  }

 private:
  bool loads() const { return kind_.find("load") != std::string::npos || kind_ == "mapped"; }
  // Whether it is a file of torch.save.
  bool is_one_file() const { return !kind_.starts_with("sharded") && !kind_.starts_with("async"); }

  void save() {
    if (is_one_file()) {
      checkpoint::save(tensors_, path_, {.sync = sync_});
    } else {
      checkpoint::save_sharded(state_, path_, {.sync_files = sync_});
    }
  }

  double step() {
    const auto begin = steady_clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count(); };
    if (kind_ == "async-fsync") {
      checkpoint::AsyncSave save = checkpoint::async_save(state_, path_);
      const double stall = elapsed();
      save.wait();
      return stall;
    }
    if (kind_ == "sharded-load") {
      checkpoint::load_sharded(state_, path_);
      return elapsed();
    }
    if (!loads()) {
      save();
      return elapsed();
    }
    const auto loaded = checkpoint::load_tensors(path_, {.mmap = kind_ == "mapped"});
    const double milliseconds = elapsed();
    if (loaded[loaded.size() - 1].value()[0][0].item<int64_t>() != static_cast<int64_t>(loaded.size()) - 1) {
      throw std::runtime_error("another tensor was loaded than was saved");
    }
    return milliseconds;
  }

  // Allocates memory before the measurement, as a virtual machine may have to get it from its host, which takes longer than
  // everything measured. Memory for loaded tensors comes from the kernel, as in a process that loads once, and not from the round
  // before.
  void prepare() const {
    if (kind_ == "load") mallopt(M_MMAP_THRESHOLD, kLeastMapped);
    const auto num_bytes = static_cast<size_t>(mebibytes_) << 21;
    void* memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory != MAP_FAILED) munmap(memory, num_bytes);
    if (is_initialized()) barrier();
  }

  // Removes the saved files, so that the kernel need not write them to disk.
  void clean() const {
    if (loads()) return;
    if (is_initialized()) barrier();
    if (!is_initialized() || get_rank() == 0) std::filesystem::remove_all(path_);
    if (is_initialized()) barrier();
  }

  std::string kind_;
  int mebibytes_;
  std::string path_;
  bool sync_;
  checkpoint::ShardedStateDict state_;
  checkpoint::StateDict tensors_;
};

class CheckpointRank {
 public:
  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, name;
    words >> verb >> name;
    if (verb == "drop") {
      cases_.clear();
      return "ok";
    }
    if (verb == "copy") {
      std::string kind, folder;
      int mebibytes = 0;
      words >> kind >> mebibytes >> folder;
      cases_[name] = std::make_unique<CheckpointCase>(kind, mebibytes, folder);
      return "ok";
    }
    CheckpointCase& what = *cases_.at(name);
    if (verb == "verify") return std::to_string(what.num_tensors());
    int num_warm = 0, num_steps = 0;
    words >> num_warm >> num_steps;
    return fmt::format("{:.6f}", what.run(num_warm, num_steps));
  }

 private:
  std::map<std::string, std::unique_ptr<CheckpointCase>> cases_;
};

}  // namespace

int run_checkpoint_rank(const std::vector<std::string>& arguments) {
  const int num_ranks = std::stoi(arguments.at(0));
  at::set_num_threads(num_ranks > 1 ? 1 : 2);
  if (num_ranks > 1) {
    InitOptions options;
    options.backend = "gloo";
    options.init_method = arguments.at(3);
    options.rank = std::stoi(arguments.at(1));
    options.world_size = num_ranks;
    init_process_group(options);
  }
  {
    CheckpointRank rank;
    serve_commands(arguments.at(2), [&](const std::string& command) { return rank.answer(command); });
  }
  if (num_ranks > 1) destroy_process_group();
  return 0;
}

}  // namespace cohort::bench
