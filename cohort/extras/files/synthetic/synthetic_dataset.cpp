#include "cohort/extras/files/synthetic/synthetic_dataset.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/extras/files/sets/official_sets.h"
#include "cohort/extras/files/synthetic/making.h"

namespace cohort::files {
namespace {

struct Maker {
  SyntheticDataset set;
  /// The folder of Python's version; null without one.
  const char* pickled_folder;
  base::Result<void> (*make)(const Making&);
};

const Maker kMakers[] = {
    {{"mnist", "drawn digits in MNIST's format", "MNIST/raw", 1000, 1}, nullptr, make_mnist},
    {{"fashion-mnist", "drawn digits in Fashion-MNIST's place", "FashionMNIST/raw", 1000, 1}, nullptr, make_mnist},
    {{"kmnist", "drawn digits in Kuzushiji-MNIST's place", "KMNIST/raw", 1000, 1}, nullptr, make_mnist},
    {{"cifar10", "colored shapes in CIFAR-10's format", "cifar-10-batches-bin", 1000, 5},
     "cifar-10-batches-py",
     make_cifar10},
    {{"cifar100", "colored shapes in CIFAR-100's format", "cifar-100-binary", 2000, 1},
     "cifar-100-python",
     make_cifar100},
    {{"images", "colored shapes as JPEG and PNG files, in a folder for each class", "images", 200, 1},
     nullptr,
     make_images},
    {{"tokens", "sentences as tokens: nanoGPT's .bin, uint16, a token is a byte", "tokens", 100'000, 1},
     nullptr,
     make_tokens},
    {{"tiny-shakespeare", "a text of sentences", "tinyshakespeare", 100'000, 1}, nullptr, make_text},
    {{"csv", "a table of 8 numbers and a label of 3 classes", "csv", 1000, 1}, nullptr, make_csv},
};

constexpr auto kNoteText =
    "This is not the published dataset: \"cohort-data make {}\" has written it, a small synthetic dataset in the same "
    "format.\n";

const Maker* find_maker(const std::string& name) {
  const auto* found =
      std::find_if(std::begin(kMakers), std::end(kMakers), [&](const Maker& maker) { return name == maker.set.name; });
  return found == std::end(kMakers) ? nullptr : found;
}

std::string names_of_makers() {
  std::vector<std::string> names;
  for (const Maker& maker : kMakers) names.emplace_back(maker.set.name);
  return base::join(names, ", ");
}

base::Error exists_already(const std::string& folder) {
  return base::Error(fmt::format("\"{}\" is there already", folder));
}

// Removes the old folder only when the new one is complete.
base::Result<void> put_in_place(const std::string& made, const std::string& folder, bool overwrite) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string old = made + ".old";
  if (overwrite && fs::exists(folder, error)) fs::rename(folder, old, error);
  if (!error) fs::rename(made, folder, error);
  if (error == std::errc::directory_not_empty || error == std::errc::file_exists) return exists_already(folder);
  if (error) return base::Error(fmt::format("cannot put \"{}\" in place: {}", folder, error.message()));
  fs::remove_all(old, error);
  return {};
}

base::Result<std::string> make_with(const Maker& maker, const std::string& folder, int64_t num_samples,
                                    const SyntheticDatasetOptions& options) {
  const std::filesystem::path path(folder);
  if (auto made = base::make_directories(path.parent_path().string()); !made) return made.error();
  const auto temporary =
      base::make_unique_directory(fmt::format("{}/.{}.making.", path.parent_path().string(), path.filename().string()));
  if (!temporary) return temporary.error();
  const Making making(*temporary, options, num_samples);
  auto made = maker.make(making);
  if (made) made = making.put(kSyntheticNote, fmt::format(kNoteText, maker.set.name));
  if (made) made = put_in_place(*temporary, folder, options.overwrite);
  std::error_code error;
  std::filesystem::remove_all(*temporary, error);
  if (!made) return made.error();
  return folder;
}

}  // namespace

int64_t Making::num_samples(SetPart part) const {
  return part == SetPart::kTrain ? num_samples_ : std::max<int64_t>(num_samples_ / 5, 1);
}

std::optional<SampleGenerator> Making::sample(SetPart part, int64_t index) const {
  if (options_.stops && options_.stops()) return std::nullopt;
  return SampleGenerator(options_.seed, static_cast<uint64_t>(part), static_cast<uint64_t>(index));
}

base::Result<void> Making::put(const std::string& name, std::string_view bytes) const {
  const std::string path = folder_ + "/" + name;
  if (auto made = base::make_directories(std::filesystem::path(path).parent_path().string()); !made) return made;
  const auto fd = base::open_for_writing(path);
  if (!fd) return fd.error();
  return base::write_all(fd->get(), bytes, path);
}

base::Error Making::stopped() { return base::Error("the work was stopped; nothing was written"); }

const std::vector<SyntheticDataset>& synthetic_datasets() {
  static const std::vector<SyntheticDataset> sets = [] {
    std::vector<SyntheticDataset> all;
    for (const Maker& maker : kMakers) all.push_back(maker.set);
    return all;
  }();
  return sets;
}

base::Result<std::string> make_synthetic_dataset(const std::string& name, const std::string& root,
                                                 const SyntheticDatasetOptions& options) {
  const Maker* const maker = find_maker(name);
  if (!maker) {
    return base::Error(fmt::format("there is no synthetic dataset for \"{}\"; there are {}", name, names_of_makers()));
  }
  if (options.pickled && !maker->pickled_folder) {
    return base::Error(fmt::format("{} has no pickled form; cifar10 and cifar100 have one", name));
  }
  const int64_t num_samples = options.num_samples == 0 ? maker->set.default_samples : options.num_samples;
  if (num_samples < maker->set.min_samples || num_samples > 10'000'000) {
    return base::Error(fmt::format("{} needs {} to 10000000 samples, but {} were asked for", name,
                                   maker->set.min_samples, num_samples));
  }
  const std::string folder = root + "/" + (options.pickled ? maker->pickled_folder : maker->set.folder);
  std::error_code error;
  if (!options.overwrite && std::filesystem::exists(folder, error)) return exists_already(folder);
  return make_with(*maker, folder, num_samples, options);
}

}  // namespace cohort::files
