// Answers each line of standard input with the indices in question, one epoch per line of output:
//   distributed LENGTH REPLICAS RANK SHUFFLE SEED EPOCH DROP_LAST
//   random      LENGTH REPLACEMENT NUM_SAMPLES SEED EPOCHS GIVEN_GENERATOR
//   subset      LENGTH SEED EPOCHS          (indices 0, 10, 20, ...)
//   weighted    LENGTH REPLACEMENT NUM_SAMPLES SEED EPOCHS   (weights 1, 2, 3, ...)
//   split       LENGTH SEED COUNT LENGTHS...   (the parts end with "|", as batches do; fractions have a point)
//   loader      LENGTH BATCH_SIZE SHUFFLE DROP_LAST WORKERS SEED EPOCHS GIVEN_GENERATOR   (batches end with "|")
//   options     KIND NAME=NUMBER ...   ("ok", or the text of the error that a DataLoader with these options throws)
//   chain       WORKERS BATCH_SIZE DROP_LAST COUNT LENGTHS...   (iterable datasets 0 1 2 ..., 100 101 ..., in a row)
//   concat      COUNT LENGTHS... INDEX   (the example, or the text of the error)
#include <ATen/Context.h>

#include <iostream>
#include <sstream>
#include <string>

#include "cohort/data/datasets/chain_dataset.h"
#include "cohort/data/datasets/concat_dataset.h"
#include "cohort/data/datasets/subset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/data/samplers/distributed_sampler.h"

namespace {

using namespace cohort::data;

struct Numbers {
  int64_t count;
  int64_t get(int64_t index) const { return index; }
  int64_t size() const { return count; }
};

// first, first + 1, ...
struct Stream {
  struct Iterator {
    int64_t place;
    int64_t end;
    std::optional<int64_t> next() { return place < end ? std::optional(place++) : std::nullopt; }
  };
  int64_t first;
  int64_t count;
  Iterator iterate() const { return {first, first + count}; }
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

template <typename Fn>
void print_error_of(Fn fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    std::cout << "error: " << error.what_without_backtrace() << '\n';
  }
}

void split(Request& request) {
  const Numbers numbers{request.number()};
  const auto generator = make_generator(request.number());
  std::vector<double> lengths(request.number());
  bool are_fractions = false;
  for (double& length : lengths) {
    std::string word;
    request.words >> word;
    are_fractions = are_fractions || word.find('.') != std::string::npos;
    length = std::stod(word);
  }
  print_error_of([&] {
    const auto parts = are_fractions
                           ? random_split(numbers, lengths, generator)
                           : random_split(numbers, std::vector<int64_t>(lengths.begin(), lengths.end()), generator);
    for (const auto& part : parts) print(part.indices(), "| ");
    std::cout << '\n';
  });
}

// Names as in Python; sampler=1 and batch_sampler=1 stand for some sampler.
DataLoaderOptions read_options(Request& request, int64_t length) {
  DataLoaderOptions options;
  for (std::string word; request.words >> word;) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const int64_t value = std::stoll(word.substr(equals + 1));
    const auto sampler = std::make_shared<SequentialSampler>(length);
    if (name == "batch_size") options.batch_size = value;
    if (name == "shuffle") options.shuffle = value;
    if (name == "sampler") options.sampler = sampler;
    if (name == "batch_sampler") options.batch_sampler = std::make_shared<BatchSampler>(sampler, 2);
    if (name == "num_workers") options.num_workers = static_cast<int>(value);
    if (name == "prefetch_factor") options.prefetch_factor = static_cast<int>(value);
    if (name == "drop_last") options.drop_last = value;
    if (name == "timeout") options.timeout = std::chrono::seconds(value);
    if (name == "in_order") options.in_order = value;
    if (name == "pin_memory") options.pin_memory = value;
    if (name == "persistent_workers") options.persistent_workers = value;
  }
  return options;
}

void options(Request& request) {
  std::string kind;
  request.words >> kind;
  const auto given = read_options(request, 10);
  print_error_of([&] {
    if (kind == "map") DataLoader(Numbers{10}, given);
    if (kind == "iterable") DataLoader(Stream{0, 10}, given);
    if (kind == "unbatched") DataLoader(Numbers{10}, given, Unbatched());
    std::cout << "ok\n";
  });
}

void chain(Request& request) {
  DataLoaderOptions options;
  options.num_workers = static_cast<int>(request.number());
  options.batch_size = request.number();
  options.drop_last = request.number();
  std::vector<Stream> streams(request.number());
  for (size_t i = 0; i < streams.size(); ++i) streams[i] = {static_cast<int64_t>(100 * i), request.number()};
  for (const auto& batch : DataLoader(ChainDataset(streams), options)) {
    const int64_t* data = batch.const_data_ptr<int64_t>();
    print({data, data + batch.numel()}, "| ");
  }
  std::cout << '\n';
}

void concat(Request& request) {
  std::vector<Numbers> parts(request.number());
  for (Numbers& part : parts) part.count = request.number();
  const int64_t index = request.number();
  print_error_of([&] { print({ConcatDataset(parts).get(index)}); });
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
  if (kind == "split") return split(request);
  if (kind == "options") return options(request);
  if (kind == "chain") return chain(request);
  if (kind == "concat") return concat(request);
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
