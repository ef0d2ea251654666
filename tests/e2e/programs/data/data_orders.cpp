// Answers each line of standard input with the indices in question, one epoch per line of output:
//   distributed LENGTH REPLICAS RANK SHUFFLE SEED EPOCH DROP_LAST
//   random      LENGTH REPLACEMENT NUM_SAMPLES SEED EPOCHS GIVEN_GENERATOR
//   subset      LENGTH SEED EPOCHS          (indices 0, 10, 20, ...)
//   weighted    LENGTH REPLACEMENT NUM_SAMPLES SEED EPOCHS   (weights 1, 2, 3, ...)
//   loader      LENGTH BATCH_SIZE SHUFFLE DROP_LAST WORKERS SEED EPOCHS GIVEN_GENERATOR   (batches end with "|")
#include <ATen/Context.h>

#include <iostream>
#include <sstream>
#include <string>

#include "cohort/data/loader/data_loader.h"
#include "cohort/data/loader/distributed_sampler.h"

namespace {

using namespace cohort::data;

struct Numbers {
  int64_t count;
  int64_t get(int64_t index) const { return index; }
  int64_t size() const { return count; }
};

struct Request {
  std::istringstream words;
  int64_t number() {
    int64_t value = 0;
    if (!(words >> value)) throw std::runtime_error("a number is missing: " + words.str());
    return value;
  }
};

void print(const std::vector<int64_t>& indices, const char* end = "\n") {
  for (const int64_t index : indices) std::cout << index << ' ';
  std::cout << end;
}

std::optional<at::Generator> seed_generator(int64_t seed, bool is_given) {
  if (is_given) return make_generator(seed);
  at::manual_seed(static_cast<uint64_t>(seed));
  return std::nullopt;
}

void distributed(Request& request) {
  const int64_t length = request.number();
  DistributedSamplerOptions options;
  options.num_replicas = request.number();
  options.rank = request.number();
  options.shuffle = request.number();
  options.seed = request.number();
  const int64_t epoch = request.number();
  options.drop_last = request.number();
  DistributedSampler sampler(length, options);
  sampler.set_epoch(epoch);
  const std::vector<int64_t> indices = sampler.indices();
  if (static_cast<int64_t>(indices.size()) != sampler.size()) throw std::runtime_error("size() is wrong");
  print(indices);
}

void random(Request& request) {
  const int64_t length = request.number();
  RandomSamplerOptions options;
  options.replacement = request.number();
  options.num_samples = request.number();
  const int64_t seed = request.number();
  const int64_t epochs = request.number();
  options.generator = seed_generator(seed, request.number());
  RandomSampler sampler(length, options);
  for (int64_t epoch = 0; epoch < epochs; ++epoch) print(sampler.indices());
}

void subset(Request& request) {
  std::vector<int64_t> indices(request.number());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i) * 10;
  SubsetRandomSampler sampler(indices, make_generator(request.number()));
  const int64_t epochs = request.number();
  for (int64_t epoch = 0; epoch < epochs; ++epoch) print(sampler.indices());
}

void weighted(Request& request) {
  std::vector<double> weights(request.number());
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(i + 1);
  const auto replacement =
      request.number() ? WeightedRandomSampler::Replacement::kYes : WeightedRandomSampler::Replacement::kNo;
  const int64_t num_samples = request.number();
  WeightedRandomSampler sampler(weights, num_samples, replacement, make_generator(request.number()));
  const int64_t epochs = request.number();
  for (int64_t epoch = 0; epoch < epochs; ++epoch) print(sampler.indices());
}

void loader(Request& request) {
  const Numbers numbers{request.number()};
  DataLoaderOptions options;
  options.batch_size = request.number();
  options.shuffle = request.number();
  options.drop_last = request.number();
  options.num_workers = static_cast<int>(request.number());
  const int64_t seed = request.number();
  const int64_t epochs = request.number();
  options.generator = seed_generator(seed, request.number());
  const DataLoader loader(numbers, options);
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const auto& batch : loader) {
      const int64_t* data = batch.const_data_ptr<int64_t>();
      print({data, data + batch.numel()}, "| ");
    }
    std::cout << '\n';
  }
}

void answer(const std::string& line) {
  Request request{std::istringstream(line)};
  std::string kind;
  request.words >> kind;
  if (kind == "distributed") return distributed(request);
  if (kind == "random") return random(request);
  if (kind == "subset") return subset(request);
  if (kind == "weighted") return weighted(request);
  if (kind == "loader") return loader(request);
  throw std::runtime_error("unknown request: " + line);
}

}  // namespace

int main() try {
  for (std::string line; std::getline(std::cin, line);) answer(line);
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
