#include "cohort/extras/data/datasets/image_folder.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cohort/data/loader/data_loader.h"
#include "tests/data/error_text.h"
#include "tests/extras/data/transforms/images.h"

namespace cohort::data {
namespace {

namespace fs = std::filesystem;
using test::error_text;
using test::noise;

class ImageFolderDataset : public testing::Test {
 protected:
  ImageFolderDataset() : root_(fs::temp_directory_path() / ("image_folder_dataset." + std::to_string(getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~ImageFolderDataset() override { fs::remove_all(root_); }

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  void add(const std::string& name, const at::Tensor& image) const {
    fs::create_directories((root_ / name).parent_path());
    write_png(image, path(name));
  }
  /// Two cats and a dog, each image another one.
  void add_animals() const {
    add("dog/0.png", noise(3, 6, 8, 2));
    add("cat/b.png", noise(3, 6, 8, 1));
    add("cat/a.png", noise(3, 6, 8, 0));
  }

  fs::path root_;
};

TEST_F(ImageFolderDataset, GivesImagesAndLabels) {
  add_animals();
  const ImageFolder folder(root_.string());
  ASSERT_EQ(folder.size(), 3);
  EXPECT_EQ(folder.classes(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(folder.class_to_idx(), (std::map<std::string, int64_t>{{"cat", 0}, {"dog", 1}}));
  EXPECT_EQ(folder.targets(), (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(folder.samples()[1], std::pair(path("cat/b.png"), int64_t{0}));
  for (int64_t i = 0; i < 3; ++i) {
    const auto [image, label] = folder.get(i);
    EXPECT_TRUE(at::equal(image, noise(3, 6, 8, static_cast<uint64_t>(i))));
    EXPECT_EQ(label.item<int64_t>(), i / 2);
    EXPECT_EQ(label.scalar_type(), at::kLong);
  }
}

TEST_F(ImageFolderDataset, OptionsReachTheDecoder) {
  const at::Tensor gray = noise(1, 40, 48);
  add("a/0.png", gray);
  EXPECT_TRUE(at::equal(ImageFolder(root_.string()).get(0).first, gray.expand({3, 40, 48})));
  EXPECT_TRUE(at::equal(ImageFolder(root_.string(), {.mode = ImageReadMode::kGray}).get(0).first, gray));
  const ImageFolder small(root_.string(), {.max_pixels = 1919});
  EXPECT_EQ(
      error_text<c10::Error>([&] { small.get(0); }),
      "[cohort] \"" + path("a/0.png") + "\", at byte 16: expected an image of at most 1919 pixels, but found 1920");
  fs::remove(path("a/0.png"));
  write_jpeg(gray, path("a/0.jpg"));
  EXPECT_EQ(ImageFolder(root_.string(), {.decode_size = 20}).get(0).first.sizes(), (std::vector<int64_t>{3, 20, 24}));
}

TEST_F(ImageFolderDataset, OtherFormatsAreAnErrorOrLeftOut) {
  add_animals();
  std::ofstream(root_ / "cat" / "c.bmp") << "BM";
  EXPECT_EQ(
      error_text<c10::Error>([&] { ImageFolder{root_.string()}; }),
      "[cohort] ImageFolder decodes JPEG and PNG, but not \"" + path("cat/c.bmp") +
          "\" (1 such files)\n  hint: convert them, or leave them out with ImageFolderOptions::skip_other_formats");
  EXPECT_EQ(ImageFolder(root_.string(), {.skip_other_formats = true}).size(), 3);
}

TEST_F(ImageFolderDataset, ListingMessages) {
  EXPECT_EQ(error_text<c10::Error>([&] { ImageFolder{root_.string()}; }),
            "[cohort] Couldn't find any class folder in " + root_.string() + ".");
  add_animals();
  fs::create_directories(root_ / "cow");
  EXPECT_EQ(error_text<c10::Error>([&] { ImageFolder{root_.string()}; }),
            "[cohort] Found no valid file for the classes cow. Supported extensions are: .jpg, .jpeg, .png, .ppm, "
            ".bmp, .pgm, .tif, "
            ".tiff, .webp");
  EXPECT_EQ(ImageFolder(root_.string(), {.allow_empty = true}).classes().size(), 3U);
  EXPECT_EQ(error_text<c10::IndexError>([&] { ImageFolder(root_.string(), {.allow_empty = true}).get(3); }),
            "[cohort] ImageFolder has 3 images, but image 3 was asked for");
}

TEST_F(ImageFolderDataset, AFileThatVanishesIsAnErrorOrSkipped) {
  add_animals();
  const ImageFolder folder(root_.string());
  fs::remove(path("cat/b.png"));
  fs::resize_file(path("dog/0.png"), 20);
  EXPECT_EQ(error_text<c10::Error>([&] { folder.get(1); }),
            "[cohort] cannot open \"" + path("cat/b.png") + "\": No such file or directory (ENOENT)");
  EXPECT_EQ(error_text<c10::Error>([&] { folder.get(2); }),
            "[cohort] \"" + path("dog/0.png") +
                "\", at byte 16: expected 17 bytes of the chunk IHDR, but found only 4 before the end of the file");
  for (const int64_t num_workers : {0, 2}) {
    DataLoaderOptions options;
    options.batch_size = 3;
    options.num_workers = num_workers;
    options.skip_unreadable = true;
    const DataLoader loader(folder, options);
    int64_t num_images = 0;
    for (auto& [images, labels] : loader) {
      EXPECT_TRUE(at::equal(images[0], noise(3, 6, 8, 0)));
      EXPECT_EQ(labels.scalar_type(), at::kLong);
      num_images += images.size(0);
    }
    EXPECT_EQ(num_images, 1);
    EXPECT_EQ(loader.stats().num_skipped, 2);
  }
}

}  // namespace
}  // namespace cohort::data
