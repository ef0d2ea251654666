#include "cohort/extras/files/images/image_folder_index.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace cohort::files {
namespace {

namespace fs = std::filesystem;

class ImageFolder : public testing::Test {
 protected:
  ImageFolder() : root_(fs::temp_directory_path() / ("image_folder." + std::to_string(getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~ImageFolder() override { fs::remove_all(root_); }

  void add(const std::string& path) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << path;
  }
  std::string path(const std::string& name) const { return (root_ / name).string(); }
  std::string error() const { return index_image_folder(root_).error().describe(); }

  fs::path root_;
};

using Samples = std::vector<std::pair<std::string, int64_t>>;

TEST_F(ImageFolder, ListsClassesAndFilesInPythonsOrder) {
  for (const char* name : {"dog/10.png", "dog/9.JPG", "cat/a/1.jpeg", "cat/z.webp", "cat/a-b/2.png", "cat/a/c/3.PnG",
                           "cat/notes.txt", "Zebra/1.tiff", "loose.png", "dog/jpg"}) {
    add(name);
  }
  const auto index = index_image_folder(root_);
  ASSERT_TRUE(index.ok()) << index.error().describe();
  EXPECT_EQ(index->classes, (std::vector<std::string>{"Zebra", "cat", "dog"}));
  // "a-b" comes before "a/c", as '-' does before '/'.
  EXPECT_EQ(index->samples, (Samples{{path("Zebra/1.tiff"), 0},
                                     {path("cat/z.webp"), 1},
                                     {path("cat/a/1.jpeg"), 1},
                                     {path("cat/a-b/2.png"), 1},
                                     {path("cat/a/c/3.PnG"), 1},
                                     {path("dog/10.png"), 2},
                                     {path("dog/9.JPG"), 2}}));
}

TEST_F(ImageFolder, FollowsLinksAndListsWhatIsNotThereAnyMore) {
  add("cat/1.png");
  add("elsewhere/deep/2.png");
  fs::create_directory_symlink(root_ / "elsewhere" / "deep", root_ / "cat" / "link");
  fs::create_symlink("/no/such/file", root_ / "cat" / "gone.png");
  fs::create_directory_symlink("elsewhere", root_ / "kitten");
  const auto index = index_image_folder(root_);
  ASSERT_TRUE(index.ok()) << index.error().describe();
  EXPECT_EQ(index->samples, (Samples{{path("cat/1.png"), 0},
                                     {path("cat/gone.png"), 0},
                                     {path("cat/link/2.png"), 0},
                                     {path("elsewhere/deep/2.png"), 1},
                                     {path("kitten/deep/2.png"), 2}}));
}

TEST_F(ImageFolder, ARingOfLinksIsAnError) {
  add("cat/1.png");
  fs::create_directory_symlink(root_, root_ / "cat" / "ring");
  EXPECT_EQ(error(), "the folder \"" + path("cat/ring/cat") + "\" is a link to a folder that it lies in");
}

TEST_F(ImageFolder, Messages) {
  EXPECT_EQ(error(), "Couldn't find any class folder in " + root_.string() + ".");
  add("cat/1.png");
  add("cow/1.txt");
  fs::create_directories(root_ / "dog");
  EXPECT_EQ(error(),
            "Found no valid file for the classes cow, dog. Supported extensions are: .jpg, .jpeg, .png, .ppm, .bmp, "
            ".pgm, .tif, "
            ".tiff, .webp");
  const auto index = index_image_folder(root_, {.allow_empty = true});
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->classes.size(), 3U);
  EXPECT_EQ(index->samples.size(), 1U);
  EXPECT_EQ(index_image_folder(root_, {.extensions = {".txt"}}).error().describe(),
            "Found no valid file for the classes cat, dog. Supported extensions are: .txt");
  EXPECT_EQ(index_image_folder(path("nowhere")).error().describe(),
            "cannot list the folder \"" + path("nowhere") + "\": No such file or directory (ENOENT)");
}

TEST_F(ImageFolder, OnlySomeOfTheExtensionsCanBeDecoded) {
  for (const char* name : {"a.jpg", "a.JPEG", "b/a.Png"}) EXPECT_TRUE(is_decodable_name(name));
  for (const char* name : {"a.bmp", "a.webp", "a.jpg.tif", "png"}) EXPECT_FALSE(is_decodable_name(name));
}

}  // namespace
}  // namespace cohort::files
