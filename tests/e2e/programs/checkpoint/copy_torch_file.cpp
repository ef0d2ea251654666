// copy_torch_file FROM TO [mmap] [check] [metadata] [cpu] [cuda1] [state_dict] [small]: load and save, the whole, as a
// state dict, or the entry "small" alone. Prints the error.
#include <ATen/core/Dict.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "cohort/checkpoint/file/torch_file.h"

int main(int argc, char** argv) {
  using namespace cohort::checkpoint;
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto has = [&](const std::string& word) {
    for (size_t i = 2; i < words.size(); ++i) {
      if (words[i] == word) return true;
    }
    return false;
  };
  LoadOptions options{.mmap = has("mmap"), .check = has("check"), .keep_metadata = has("metadata")};
  if (has("cpu")) options.map_location = c10::Device(c10::kCPU);
  if (has("cuda1")) options.map_location = std::map<std::string, std::string>{{"cuda:0", "cuda:1"}};
  const SaveOptions save_options{.sync = false, .metadata_entries = has("metadata")};
  try {
    if (has("state_dict")) {
      save(load_tensors(words[0], options), words[1], save_options);
    } else if (has("small")) {
      save(load(words[0], options).toGenericDict().at("small"), words[1], save_options);
    } else {
      save(load(words[0], options), words[1], save_options);
    }
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
  return 0;
}
