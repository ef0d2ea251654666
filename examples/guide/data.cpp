// The programs of docs/guide/data.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/comm/group/process_group.h>
#include <cohort/data/datasets/chain_dataset.h>
#include <cohort/data/datasets/concat_dataset.h>
#include <cohort/data/datasets/stack_dataset.h>
#include <cohort/data/datasets/subset.h>
#include <cohort/data/datasets/tensor_dataset.h>
#include <cohort/data/datasets/text_corpus.h>
#include <cohort/data/datasets/token_dataset.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/data/loader/iterable.h>
#include <cohort/data/samplers/distributed_sampler.h>
#include <cohort/data/samplers/elastic_distributed_sampler.h>
#include <cohort/data/samplers/length_bucket_sampler.h>
#include <torch/types.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "guide.h"

namespace guide {
namespace {

void load_a_share() {
  using namespace cohort::data;
  const TensorDataset dataset(torch::randn({1000, 20}), torch::randn({1000, 1}));
  const auto sampler = std::make_shared<DistributedSampler>(dataset.size());
  const DataLoader loader(dataset, {.batch_size = 32, .sampler = sampler, .num_workers = 2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler->set_epoch(epoch);  // a new order in each epoch, the same on every rank
    for (const auto& [input, target] : loader) {
      TORCH_CHECK(input.size(0) == target.size(0));
    }
  }
}

// A dataset is any type with size() and get().
struct Squares {
  struct Example {
    at::Tensor input;
    at::Tensor target;
  };
  int64_t size() const { return 100; }
  Example get(int64_t index) const { return {torch::full({1}, index), torch::full({1}, index * index)}; }
};

void load_a_type_of_your_own() {
  const cohort::data::DataLoader loader(Squares(), {.batch_size = 10, .shuffle = true});
  for (const Squares::Example& batch : loader) {  // each field is stacked
    TORCH_CHECK(batch.input.sizes() == at::IntArrayRef({10, 1}));
  }
}

void join_examples_your_way() {
  const auto sum_of = [](const std::vector<Squares::Example>& examples) {
    at::Tensor sum = torch::zeros({1}, torch::kLong);
    for (const auto& example : examples) sum += example.target;
    return sum;
  };
  const cohort::data::DataLoader loader(Squares(), {.batch_size = 10}, sum_of);
  TORCH_CHECK((*loader.begin()).item<int64_t>() == 285);
}

void go_on_in_the_middle(int64_t epoch, int64_t batch) {
  const cohort::data::TensorDataset dataset(torch::arange(64));
  const auto sampler = std::make_shared<cohort::data::DistributedSampler>(dataset.size());
  const cohort::data::DataLoader loader(dataset, {.batch_size = 8, .sampler = sampler});
  sampler->set_epoch(epoch);
  auto rest = loader.start(/*first_batch=*/batch);  // the batches before it are not read
  while (const auto next = rest.next()) {
    const auto& [rows] = *next;
    TORCH_CHECK(rows.size(0) == 8);
  }
}

// Trains until it has taken `steps` batches, and returns what a checkpoint needs of the data.
cohort::data::StateDict train_some(const cohort::data::StateDict& saved, int64_t steps) {
  using namespace cohort::data;
  const TensorDataset dataset(torch::arange(64));
  const auto sampler = std::make_shared<ElasticDistributedSampler>(dataset.size());
  DataLoader loader(dataset, {.batch_size = 4, .sampler = sampler, .num_workers = 2});
  if (!saved.empty()) loader.load_state_dict(saved);  // the state of any rank, saved by any number of ranks
  for (int64_t epoch = sampler->epoch(); epoch < 3; ++epoch) {
    sampler->set_epoch(epoch);  // continues a loaded epoch
    for (const auto& [rows] : loader) {
      TORCH_CHECK(rows.size(0) <= 4);
      if (--steps == 0) return loader.state_dict();  // tensors by name, for the checkpoint
    }
  }
  return loader.state_dict();
}

void divide_and_join() {
  using namespace cohort::data;
  const auto parts = random_split(Squares(), {0.8, 0.1, 0.1}, make_generator(/*seed=*/42));  // Python's indices
  const DataLoader training(parts[0], {.batch_size = 16, .shuffle = true});
  const Subset first_ten(Squares(), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const ConcatDataset more(parts[0], first_ten);                          // one after the other
  const StackDataset pairs(TensorDataset(torch::arange(10)), first_ten);  // example i of each, as a tuple
  TORCH_CHECK(training.size() == 5 && more.size() == 90 && pairs.size() == 10);
}

// An iterable dataset: iterate() returns a new iterator, whose next() returns an optional example, empty at the end.
struct CountDown {
  struct Iterator {
    int64_t left;
    std::optional<int64_t> next() { return left > 0 ? std::optional(left--) : std::nullopt; }
  };
  int64_t begin;
  Iterator iterate() const { return {begin}; }
};

void load_a_stream() {
  using namespace cohort::data;
  const ChainDataset numbers(std::vector{CountDown{20}, CountDown{5}});
  const DataLoader loader(sharded(numbers), {.batch_size = 4, .num_workers = 2});
  for (const at::Tensor& batch : loader) {  // each number in one batch of one rank
    TORCH_CHECK(batch.numel() <= 4);
  }
}

void load_text(const std::string& folder) {
  using namespace cohort::data;
  const auto corpus = TextCorpus::open(folder, {.extensions = {".txt"}});
  const auto [training, held_out] = split_corpus(corpus, {.context_length = 16}, /*held_out_fraction=*/0.1);
  const DataLoader loader(training, {.batch_size = 4, .shuffle = true, .drop_last = true});
  for (const auto& [input, target] : loader) {  // target: the same bytes, one position later
    TORCH_CHECK(input.sizes() == target.sizes() && input.size(1) == 16);
  }
}

// An order of your own.
class EveryOther : public cohort::data::Sampler {
 public:
  explicit EveryOther(int64_t dataset_size) : size_(dataset_size / 2) {}
  std::vector<int64_t> indices() override {
    std::vector<int64_t> result;
    for (int64_t i = 0; i < size_; ++i) result.push_back(2 * i);
    return result;
  }
  int64_t size() const override { return size_; }

 private:
  int64_t size_;
};

void use_other_samplers() {
  using namespace cohort::data;
  const auto dataset = std::make_shared<Squares>();
  const auto generator = make_generator(/*seed=*/3);
  const DataLoader random(
      dataset, {.sampler = std::make_shared<RandomSampler>(100, RandomSamplerOptions{.generator = generator})});
  const DataLoader own(dataset, {.batch_size = 5, .sampler = std::make_shared<EveryOther>(100)});
  const DataLoader in_batches(dataset, {.batch_sampler = std::make_shared<BatchSampler>(
                                            std::make_shared<SequentialSampler>(100), 7, LastBatch::kDrop)});
  TORCH_CHECK(random.size() == 100 && own.size() == 10 && in_batches.size() == 14);
}

}  // namespace

void run_data() {
  cohort::init_process_group();
  load_a_share();
  load_a_type_of_your_own();
  join_examples_your_way();
  divide_and_join();
  load_a_stream();
  go_on_in_the_middle(/*epoch=*/1, /*batch=*/2);
  const auto state = train_some({}, /*steps=*/5);
  train_some(state, /*steps=*/100);
  const auto folder = std::filesystem::temp_directory_path() / ("cohort_guide_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "a.txt") << std::string(2000, 'a');
  load_text(folder.string());
  std::filesystem::remove_all(folder);
  use_other_samplers();
  cohort::destroy_process_group();
}

}  // namespace guide
