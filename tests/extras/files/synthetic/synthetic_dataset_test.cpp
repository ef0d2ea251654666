#include "cohort/extras/files/synthetic/synthetic_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "cohort/base/file/file.h"
#include "cohort/extras/files/images/image_reader.h"
#include "cohort/extras/files/sets/cifar_records.h"
#include "cohort/extras/files/sets/fetch.h"

namespace cohort::files {
namespace {

namespace fs = std::filesystem;

class SyntheticDatasetTest : public testing::Test {
 protected:
  SyntheticDatasetTest() { folder_ = base::make_unique_directory(testing::TempDir() + "cohort_synthetic_").value(); }
  ~SyntheticDatasetTest() override { fs::remove_all(folder_); }

  std::string make(const std::string& name, const SyntheticDatasetOptions& options = {}) const {
    const auto made = make_synthetic_dataset(name, folder_, options);
    EXPECT_TRUE(made.ok()) << made.error().describe();
    return made ? *made : "";
  }
  std::string error_of(const std::string& name, const SyntheticDatasetOptions& options = {}) const {
    const auto made = make_synthetic_dataset(name, folder_, options);
    return made ? "no error" : made.error().describe();
  }
  static std::string read(const std::string& path) {
    auto text = base::read_file(path);
    EXPECT_TRUE(text.ok()) << text.error().describe();
    return text ? *text : "";
  }

  std::string folder_;
};

/// Softmax regression on raw bytes, by gradient descent one sample at a time: what the simplest model learns.
class LinearClassifier {
 public:
  LinearClassifier(size_t num_inputs, size_t num_classes)
      : num_inputs_(num_inputs), num_classes_(num_classes), weights_(num_classes * (num_inputs + 1)) {}

  void learn(const uint8_t* input, size_t label, float rate) {
    auto values = scores(input);
    const float largest = *std::max_element(values.begin(), values.end());
    float sum = 0;
    for (float& value : values) sum += value = std::exp(value - largest);
    for (size_t k = 0; k < num_classes_; ++k) {
      const float step = rate * (values[k] / sum - (k == label ? 1.0F : 0.0F));
      float* const row = &weights_[k * (num_inputs_ + 1)];
      for (size_t i = 0; i < num_inputs_; ++i) row[i] -= step * static_cast<float>(input[i]) / 255;
      row[num_inputs_] -= step;
    }
  }
  size_t guess(const uint8_t* input) const {
    const auto values = scores(input);
    return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
  }

 private:
  std::vector<float> scores(const uint8_t* input) const {
    std::vector<float> values;
    for (size_t k = 0; k < num_classes_; ++k) {
      const float* const row = &weights_[k * (num_inputs_ + 1)];
      float score = row[num_inputs_];
      for (size_t i = 0; i < num_inputs_; ++i) score += row[i] * static_cast<float>(input[i]) / 255;
      values.push_back(score);
    }
    return values;
  }

  size_t num_inputs_, num_classes_;
  std::vector<float> weights_;
};

struct LabeledBytes {
  std::string pixels;
  std::string labels;
};

// The part of the test samples that is guessed right after learning from those for training.
double learned(const LabeledBytes& train, const LabeledBytes& test, size_t num_inputs, float rate) {
  LinearClassifier classifier(num_inputs, 10);
  const auto input = [&](const LabeledBytes& samples, size_t i) {
    return reinterpret_cast<const uint8_t*>(samples.pixels.data()) + i * num_inputs;
  };
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (size_t i = 0; i < train.labels.size(); ++i) {
      classifier.learn(input(train, i), static_cast<size_t>(train.labels[i]), rate);
    }
  }
  size_t num_right = 0;
  for (size_t i = 0; i < test.labels.size(); ++i) {
    num_right += classifier.guess(input(test, i)) == static_cast<size_t>(test.labels[i]);
  }
  return static_cast<double>(num_right) / static_cast<double>(test.labels.size());
}

TEST_F(SyntheticDatasetTest, DigitsCanBeLearned) {
  const std::string folder = make("mnist", {.num_samples = 2000, .stops = {}});
  const auto samples = [&](const std::string& part) {
    return LabeledBytes{read(folder + "/" + part + "-images-idx3-ubyte").substr(16),
                        read(folder + "/" + part + "-labels-idx1-ubyte").substr(8)};
  };
  const double right = learned(samples("train"), samples("t10k"), 28 * 28, 0.02F);
  EXPECT_GT(right, 0.7);
  RecordProperty("accuracy", std::to_string(right));
}

TEST_F(SyntheticDatasetTest, ShapesCanBeLearned) {
  const std::string folder = make("cifar10", {.num_samples = 2000, .stops = {}});
  const auto samples = [&](const std::vector<std::string>& files) {
    LabeledBytes result;
    for (const auto& file : files) {
      const std::string bytes = read(folder + "/" + file);
      for (size_t i = 0; i < bytes.size(); i += kCifarImageBytes + 1) {
        result.labels += bytes[i];
        result.pixels += bytes.substr(i + 1, kCifarImageBytes);
      }
    }
    return result;
  };
  const auto train = samples({"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin"});
  const double right = learned(train, samples({"test_batch.bin"}), kCifarImageBytes, 0.002F);
  EXPECT_GT(right, 0.35);
  RecordProperty("accuracy", std::to_string(right));
}

TEST_F(SyntheticDatasetTest, AreTheSameForTheSameSeed) {
  for (const auto& set : synthetic_datasets()) {
    const auto bytes_of = [&](int64_t num_samples, uint64_t seed) {
      const std::string folder =
          make(set.name, {.num_samples = num_samples, .seed = seed, .overwrite = true, .stops = {}});
      std::string bytes;
      std::vector<std::string> files;
      for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        if (entry.is_regular_file()) files.push_back(entry.path().string());
      }
      std::sort(files.begin(), files.end());
      for (const auto& file : files) bytes += file + "=" + read(file);
      return bytes;
    };
    const std::string first = bytes_of(20, 7);
    EXPECT_EQ(first, bytes_of(20, 7)) << set.name;
    EXPECT_NE(first, bytes_of(20, 8)) << set.name;
  }
}

TEST_F(SyntheticDatasetTest, FirstSamplesDoNotDependOnTheNumber) {
  const std::string images = "/train-images-idx3-ubyte";
  const std::string few = read(make("mnist", {.num_samples = 5, .stops = {}}) + images).substr(16);
  const std::string many = read(make("mnist", {.num_samples = 9, .overwrite = true, .stops = {}}) + images).substr(16);
  EXPECT_EQ(few.size(), 5U * 28 * 28);
  EXPECT_EQ(many.substr(0, few.size()), few);
  const std::string test = read(folder_ + "/MNIST/raw/t10k-images-idx3-ubyte").substr(16);
  EXPECT_NE(test.substr(0, 28 * 28), few.substr(0, 28 * 28));  // other samples than those for training
}

TEST_F(SyntheticDatasetTest, ImagesLieInAFolderOfTheirClass) {
  const std::string folder = make("images", {.num_samples = 60, .stops = {}});
  std::map<std::string, int> counts;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == kSyntheticNote) continue;
    const std::string bytes = read(entry.path().string());
    const auto file = InputFile::view(entry.path().string(), bytes);
    auto reader = ImageReader::open(file);
    ASSERT_TRUE(reader.ok()) << reader.error().describe();
    std::vector<uint8_t> pixels(reader->shape().num_bytes());
    EXPECT_TRUE(reader->read(pixels.data()).ok());
    EXPECT_GE(reader->shape().height, 48U);
    EXPECT_EQ(bytes.substr(0, 2) == "\xff\xd8", entry.path().extension() == ".jpg");
    ++counts[entry.path().extension().string()];
    ++counts[entry.path().parent_path().parent_path().filename().string()];
  }
  EXPECT_EQ(counts["train"], 60);
  EXPECT_EQ(counts["val"], 12);
  EXPECT_GT(counts[".jpg"], counts[".png"]);
  EXPECT_GT(counts[".png"], 0);
}

TEST_F(SyntheticDatasetTest, IdxHasTheRealHeader) {
  const std::string folder = make("mnist", {.num_samples = 300, .stops = {}});
  EXPECT_EQ(read(folder + "/train-images-idx3-ubyte").substr(0, 16),
            std::string("\0\0\x08\x03\0\0\x01\x2c\0\0\0\x1c\0\0\0\x1c", 16));
  const std::string labels = read(folder + "/t10k-labels-idx1-ubyte");
  EXPECT_EQ(labels.substr(0, 8), std::string("\0\0\x08\x01\0\0\0\x3c", 8));
  EXPECT_EQ(labels.size(), 8U + 60);
}

TEST_F(SyntheticDatasetTest, AFolderThatIsThereStays) {
  const std::string folder = make("csv", {.num_samples = 3, .stops = {}});
  const std::string before = read(folder + "/train.csv");
  EXPECT_EQ(error_of("csv", {.num_samples = 9, .stops = {}}), "\"" + folder + "\" is there already");
  EXPECT_EQ(read(folder + "/train.csv"), before);
  make("csv", {.num_samples = 9, .overwrite = true, .stops = {}});
  EXPECT_THAT(read(folder + "/train.csv"), testing::StartsWith(before));
  EXPECT_GT(read(folder + "/train.csv").size(), before.size());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(SyntheticDatasetTest, TokensAreOfTwoBytesInTwoFiles) {
  const std::string folder = make("tokens", {.num_samples = 1000, .stops = {}});
  EXPECT_EQ(read(folder + "/train.bin").size(), 2000u);
  EXPECT_EQ(read(folder + "/val.bin").size(), 400u);
}

TEST_F(SyntheticDatasetTest, WhatIsStoppedLeavesNothing) {
  int calls = 0;
  EXPECT_EQ(error_of("cifar100", {.num_samples = 100, .stops = [&] { return ++calls > 110; }}),
            "the work was stopped; nothing was written");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SyntheticDatasetTest, MistakesMessages) {
  EXPECT_EQ(error_of("imagenet"),
            "there is no synthetic dataset for \"imagenet\"; there are mnist, fashion-mnist, kmnist, cifar10, "
            "cifar100, images, "
            "tokens, "
            "tiny-shakespeare, csv");
  EXPECT_EQ(error_of("cifar10", {.num_samples = 4, .stops = {}}),
            "cifar10 needs 5 to 10000000 samples, but 4 were asked for");
  EXPECT_EQ(error_of("csv", {.pickled = true, .stops = {}}), "csv has no pickled form; cifar10 and cifar100 have one");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SyntheticDatasetTest, IsNotTakenForThePublishedSetMessage) {
  for (const auto& [name, folder] : {std::pair("mnist", "MNIST/raw"), {"tiny-shakespeare", "tinyshakespeare"}}) {
    EXPECT_EQ(read(make(name) + "/SYNTHETIC.txt"),
              "This is not the published dataset: \"cohort-data make " + std::string(name) +
                  "\" has written it, a small synthetic dataset in the same format.\n");
    const auto fetched = fetch(name, folder_);
    ASSERT_FALSE(fetched.ok());
    EXPECT_EQ(fetched.error().describe(),
              "\"" + folder_ + "/" + folder + "\" holds a synthetic dataset of cohort-data make, not " + name +
                  "\n  hint: remove that folder, or choose another one for the published dataset");
  }
  EXPECT_THAT(make("cifar10", {.pickled = true}), testing::EndsWith("cifar-10-batches-py"));
  const std::string made = folder_ + "/cifar-10-batches-py/";
  fs::rename(made + "SYNTHETIC.txt", made + "STAND-IN.txt");  // the note of earlier versions
  EXPECT_THAT(fetch("cifar10", folder_).error().describe(), testing::HasSubstr("holds a synthetic dataset"));
}

}  // namespace
}  // namespace cohort::files
