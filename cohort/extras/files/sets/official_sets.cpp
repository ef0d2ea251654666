#include "cohort/extras/files/sets/official_sets.h"

#include <algorithm>

namespace cohort::files {
namespace {

constexpr uint64_t kMiB = 1 << 20;

OfficialSet cifar(std::string name, std::string summary, const char* archive, const char* md5, const char* folder) {
  const std::string url = std::string("https://www.cs.toronto.edu/~kriz/") + archive;
  std::string synthetic_dataset = name.substr(0, name.find('-'));
  return {std::move(name),
          std::move(summary),
          std::move(synthetic_dataset),
          {{url, {md5}, SetFile::Form::kTarGzip, folder, 256 * kMiB, 512 * kMiB}}};
}

/// `md5s`: of the images and labels for training, then for testing.
OfficialSet mnist(const std::string& name, std::string summary, const std::string& address, const char* folder,
                  const std::vector<const char*>& md5s) {
  const char* const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                               "t10k-labels-idx1-ubyte"};
  OfficialSet set{name, std::move(summary), name, {}};
  for (size_t i = 0; i < md5s.size(); ++i) {
    set.files.push_back({address + names[i] + ".gz",
                         {md5s[i]},
                         SetFile::Form::kGzip,
                         std::string(folder) + "/raw/" + names[i],
                         64 * kMiB,
                         128 * kMiB});
  }
  return set;
}

std::vector<OfficialSet> all_sets() {
  return {
      cifar("cifar10", "CIFAR-10: 60000 color images of 32 x 32, 10 classes; Python's batches (163 MiB)",
            "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", "cifar-10-batches-py"),
      cifar("cifar10-binary", "CIFAR-10 in its binary version (162 MiB)", "cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin"),
      cifar("cifar100", "CIFAR-100: 60000 color images of 32 x 32, 100 classes; Python's batches (161 MiB)",
            "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python"),
      cifar("cifar100-binary", "CIFAR-100 in its binary version (161 MiB)", "cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary"),
      mnist("mnist", "MNIST: 70000 handwritten digits, gray, 28 x 28 (11 MiB)",
            "https://ossci-datasets.s3.amazonaws.com/mnist/", "MNIST",
            {"f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432", "9fb629c4189551a2d022fa330f9573f3",
             "ec29112dd5afa0611ce80d1b7f02629c"}),
      mnist("fashion-mnist", "Fashion-MNIST: 70000 pieces of clothing, gray, 28 x 28 (30 MiB)",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", "FashionMNIST",
            {"8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe", "bef4ecab320f06d8554ea6380940ec79",
             "bb300cfdad3c16e7a12a480ee83cd310"}),
      mnist("kmnist", "Kuzushiji-MNIST: 70000 Japanese letters, gray, 28 x 28 (20 MiB)",
            "http://codh.rois.ac.jp/kmnist/dataset/kmnist/", "KMNIST",
            {"bdb82020997e1d708af4cf47b453dcf7", "e144d726b3acfaa3e44228e80efcd344", "5c965bf0a639b31b8f53240b1b52f4d7",
             "7320c461ea6c1c855c0b718fb2a4b134"}),
      {"tiny-shakespeare",
       "Tiny Shakespeare: one text of 1.1 MB",
       "tiny-shakespeare",
       {{"https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
         {"86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
         SetFile::Form::kPlain,
         "tinyshakespeare/input.txt",
         4 * kMiB,
         4 * kMiB}}},
  };
}

}  // namespace

const std::vector<OfficialSet>& official_sets() {
  static const std::vector<OfficialSet> sets = all_sets();
  return sets;
}

const OfficialSet* find_official_set(const std::string& name) {
  const auto& sets = official_sets();
  const auto found = std::find_if(sets.begin(), sets.end(), [&](const OfficialSet& set) { return set.name == name; });
  return found == sets.end() ? nullptr : &*found;
}

}  // namespace cohort::files
