// What CIFAR10 and CIFAR100 give; that it is what Python reads from the same files: tests/e2e/data/cifar_test.py.
#include "cohort/extras/data/datasets/cifar.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cohort/data/loader/data_loader.h"
#include "cohort/extras/data/datasets/download.h"
#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

namespace fs = std::filesystem;

class CifarTest : public testing::Test {
 protected:
  CifarTest() {
    std::string name = (fs::temp_directory_path() / "cohort_cifar_XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~CifarTest() override { fs::remove_all(root_); }

  static uint8_t pixel(int64_t image, int64_t place) {
    return static_cast<uint8_t>(image * 91 + place * 7 + place / 256);
  }

  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << bytes;
  }
  // Image i of all has label (i * 3) % 10.
  void write_batch(const std::string& name, int64_t first, int64_t count) const {
    std::string bytes;
    for (int64_t i = first; i < first + count; ++i) {
      bytes += static_cast<char>(i * 3 % 10);
      for (int64_t place = 0; place < 3072; ++place) bytes += static_cast<char>(pixel(i, place));
    }
    write("cifar-10-batches-bin/" + name, bytes);
  }
  void write_cifar10() const {
    for (int64_t i = 0; i < 5; ++i) write_batch("data_batch_" + std::to_string(i + 1) + ".bin", i * 2, 2);
    write_batch("test_batch.bin", 100, 3);
    write("cifar-10-batches-bin/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  }
  std::string root() const { return root_.string(); }

  fs::path root_;
};

TEST_F(CifarTest, ImagesAndLabelsInTheOrderOfBatches) {
  write_cifar10();
  const CIFAR10 train(root());
  ASSERT_EQ(train.size(), 10);
  for (int64_t i = 0; i < train.size(); ++i) {
    const auto [image, label] = train.get(i);
    ASSERT_EQ(image.sizes(), (std::vector<int64_t>{3, 32, 32}));
    EXPECT_EQ(label.item<int64_t>(), i * 3 % 10);
    EXPECT_EQ(label.scalar_type(), at::kLong);
    for (int64_t place = 0; place < 3072; ++place) ASSERT_EQ(image.const_data_ptr<uint8_t>()[place], pixel(i, place));
  }
  EXPECT_EQ(train.classes()[9], "j");
  const CIFAR10 test(root(), {.train = false});
  EXPECT_EQ(test.size(), 3);
  EXPECT_EQ(test.labels()[1].item<int64_t>(), 303 % 10);
}

TEST_F(CifarTest, LoaderReadsWholeBatches) {
  write_cifar10();
  DataLoader loader(CIFAR10(root()), {.batch_size = 4, .shuffle = true, .num_workers = 2});
  int64_t sum = 0;
  for (auto& [images, labels] : loader) {
    EXPECT_EQ(images.scalar_type(), at::kByte);
    EXPECT_EQ(images.size(0), labels.size(0));
    for (int64_t i = 0; i < labels.size(0); ++i) {
      const int64_t label = labels[i].item<int64_t>();
      const int64_t image = label * 7 % 10;  // 3 * 7 = 21
      EXPECT_EQ(images[i][0][0][5].item<int64_t>(), pixel(image, 5));
      sum += image;
    }
  }
  EXPECT_EQ(sum, 45);
}

TEST_F(CifarTest, ASampleIsACopy) {
  write_cifar10();
  const CIFAR10 train(root());
  train.get(3).first.zero_();
  EXPECT_EQ(train.get(3).first[0][0][0].item<int64_t>(), pixel(3, 0));
}

TEST_F(CifarTest, MistakesMessages) {
  EXPECT_EQ(test::error_text<c10::Error>([&] { CIFAR100{root()}; }),
            "[cohort] neither \"cifar-100-binary\" nor \"cifar-100-python\" is in \"" + root() +
                "\"\n  hint: set .download = true, or run: cohort-data fetch cifar100 --root " + root() +
                "\n  hint: for a small synthetic dataset, run: cohort-data make cifar100 --root " + root());
  write_cifar10();
  EXPECT_EQ(test::error_text<c10::IndexError>([&] { CIFAR10(root()).get(10); }),
            "[cohort] image 10 is out of range for a set of 10");
  EXPECT_EQ(test::error_text<c10::IndexError>([&] {
              CIFAR10(root()).get_batch({0, -1});
            }),
            "[cohort] image -1 is out of range for a set of 10");
  EXPECT_EQ(test::error_text<c10::Error>([&] { CIFAR10(root(), {.check_integrity = true}); }),
            "[cohort] digests are published for the files of \"cifar-10-batches-py\" only, not for those of \"" +
                root() + "/cifar-10-batches-bin\"\n  hint: leave check_integrity out");
}

TEST_F(CifarTest, APipeAsABatchMessage) {
  write_cifar10();
  const std::string path = root() + "/cifar-10-batches-bin/data_batch_2.bin";
  ASSERT_EQ(std::remove(path.c_str()), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(test::error_text<c10::Error>([&] { CIFAR10{root()}; }),
            "[cohort] cannot open \"" + path + "\": it is not a regular file");
}

TEST_F(CifarTest, IntegrityIsChecked) {
  write("cifar-100-python/test", "something");
  EXPECT_EQ(test::error_text<c10::Error>([&] { CIFAR100(root(), {.train = false, .check_integrity = true}); }),
            "[cohort] \"" + root() +
                "/cifar-100-python/test\" is not the published file: its MD5 is 437b930db84b8079c2dd804a71936b5f, not "
                "f0ef6b0ae62326f3e7ffdfab6717acfc");
}

TEST_F(CifarTest, DownloadsOnlyWhatIsNotThere) {
  setenv("https_proxy", "http://127.0.0.1:1", 1);  // where nobody answers
  EXPECT_THAT(test::error_text<c10::Error>([&] { CIFAR10(root(), {.download = true}); }),
              testing::StartsWith("[cohort] cannot fetch cifar10 into \"" + root() +
                                  "\"\n  caused by: cannot download "
                                  "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz: "));
  EXPECT_THAT(test::error_text<c10::Error>([&] { download("nmist", root()); }),
              testing::StartsWith("[cohort] there is no dataset \"nmist\" in the catalog (did you mean \"mnist\"?)"));
  write_cifar10();
  EXPECT_EQ(CIFAR10(root(), {.download = true}).size(), 10);
  unsetenv("https_proxy");
}

}  // namespace
}  // namespace cohort::data
