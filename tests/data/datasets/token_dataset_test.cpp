#include "cohort/data/datasets/token_dataset.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cohort/data/loader/data_loader.h"
#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

namespace fs = std::filesystem;
using test::error_text;
using testing::ElementsAre;

class TokenDatasetTest : public testing::Test {
 protected:
  TokenDatasetTest() {
    std::string name = (fs::temp_directory_path() / "cohort_token_dataset_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~TokenDatasetTest() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  std::string folder() const { return folder_.string(); }
  static std::string text_of(const TextCorpus& corpus) {
    const at::Tensor bytes = corpus.bytes(0, corpus.size());
    return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
  }

  fs::path folder_;
};

TEST_F(TokenDatasetTest, ReadsAFolderInTheOrderOfPaths) {
  write("b.txt", "second ");
  write("a/z.txt", "first ");
  write("c.txt", "third");
  const auto corpus = TextCorpus::open(folder());
  EXPECT_EQ(text_of(*corpus), "first second third");
  EXPECT_THAT(corpus->files(), ElementsAre(folder() + "/a/z.txt", folder() + "/b.txt", folder() + "/c.txt"));
}

TEST_F(TokenDatasetTest, TakesOnlyTheExtensionsAskedForAndSkipsBinaries) {
  write("a.h", "header");
  write("b.cpp", "source");
  write("c.h", std::string("bin\0ary", 7));
  write("empty.h", "");
  const auto corpus = TextCorpus::open(folder(), {.extensions = {".h"}});
  EXPECT_EQ(text_of(*corpus), "header");
  EXPECT_EQ(corpus->num_skipped_files(), 1);
}

TEST_F(TokenDatasetTest, StopsAfterMaxBytes) {
  write("a.txt", "0123456789");
  write("b.txt", "abcdefghij");
  EXPECT_EQ(text_of(*TextCorpus::open(folder(), {.max_bytes = 13})), "0123456789abc");
  EXPECT_EQ(text_of(*TextCorpus::open(folder(), {.max_bytes = 10})), "0123456789");
  EXPECT_EQ(error_text<c10::ValueError>([&] { TextCorpus::open(folder(), {.max_bytes = 0}); }),
            "[cohort] TextCorpus needs max_bytes >= 1, but got 0");
}

TEST_F(TokenDatasetTest, ReadsAcrossFiles) {
  write("a", "01");
  write("b", "2");
  write("c", "3456");
  const auto corpus = TextCorpus::open(folder());
  for (int64_t begin = 0; begin < 7; ++begin) {
    for (int64_t end = begin; end <= 7; ++end) {
      EXPECT_TRUE(corpus->bytes(begin, end).equal(at::arange(begin, end).add('0').to(at::kByte)));
    }
  }
}

TEST_F(TokenDatasetTest, TargetIsTheInputOneTokenLater) {
  const TokenDataset dataset(TextCorpus::open(write("a.txt", "abcdefgh")), {.context_length = 3});
  EXPECT_EQ(dataset.size(), 2);
  const auto [input, target] = dataset.get(1);
  EXPECT_TRUE(input.equal(at::tensor({'d', 'e', 'f'}, at::kLong)));
  EXPECT_TRUE(target.equal(at::tensor({'e', 'f', 'g'}, at::kLong)));
  EXPECT_EQ(input.scalar_type(), at::kLong);
}

TEST_F(TokenDatasetTest, StrideOneGivesEveryPosition) {
  const TokenDataset dataset(TextCorpus::open(write("a.txt", "abcdefgh")), {.context_length = 3, .stride = 1});
  EXPECT_EQ(dataset.size(), 5);
  EXPECT_TRUE(dataset.get(4).second.equal(at::tensor({'f', 'g', 'h'}, at::kLong)));
}

TEST_F(TokenDatasetTest, LoadsInBatches) {
  const TokenDataset dataset(TextCorpus::open(write("a.txt", std::string(100, 'x'))), {.context_length = 9});
  DataLoader loader(dataset, {.batch_size = 4, .num_workers = 2});
  EXPECT_EQ(loader.size(), 3);
  for (auto& [input, target] : loader) {
    EXPECT_EQ(input.size(1), 9);
    EXPECT_EQ(target.size(1), 9);
    EXPECT_TRUE(input.is_contiguous() && target.is_contiguous());
  }
}

TEST_F(TokenDatasetTest, SplitsByPosition) {
  const auto corpus = TextCorpus::open(write("a.txt", "0123456789abcdefghij"));
  const auto [train, held_out] = split_corpus(corpus, {.context_length = 2}, 0.25);
  EXPECT_EQ(train.options().end, 15);
  EXPECT_EQ(held_out.options().begin, 15);
  EXPECT_EQ(held_out.bytes().size(0), 5);
  EXPECT_TRUE(held_out.get(0).first.equal(at::tensor({'f', 'g'}, at::kLong)));
}

TEST_F(TokenDatasetTest, MissingFolderMessage) {
  const std::string pipe = folder() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_text<c10::Error>([&] { TextCorpus::open(pipe); }),
            "[cohort] cannot open \"" + pipe + "\": it is not a regular file");
  EXPECT_EQ(error_text<c10::ValueError>([] { TextCorpus::open("no/such/folder"); }),
            "[cohort] no text at \"no/such/folder\": there is no such file or folder\n"
            "  hint: give the path of a text file or of a folder of them");
}

TEST_F(TokenDatasetTest, FolderWithoutTextMessage) {
  write("a.h", std::string(4, '\0'));
  write("b.h", "");
  write("c.py", "text");
  EXPECT_EQ(error_text<c10::Error>([&] {
              TextCorpus::open(folder(), {.extensions = {".h", ".cpp"}});
            }),
            "[cohort] no text under \"" + folder() +
                "\"\n  found 2 files with a name that ends in .h, .cpp, of which 1 are binary and the others empty\n"
                "  hint: give a folder that holds text files");
}

TEST_F(TokenDatasetTest, EmptyFileMessage) {
  const std::string path = write("a.txt", "");
  EXPECT_EQ(error_text<c10::Error>([&] { TextCorpus::open(path); }),
            "[cohort] no text in \"" + path + "\": the file is empty");
}

TEST_F(TokenDatasetTest, TooShortMessage) {
  const auto corpus = TextCorpus::open(write("a.txt", "abc"));
  EXPECT_EQ(error_text<c10::ValueError>([&] { TokenDataset(corpus, {.context_length = 3}); }),
            "[cohort] a text of 3 bytes is too short for a window of 3 tokens and the token after it\n"
            "  hint: use a shorter context_length or more text");
}

TEST_F(TokenDatasetTest, OutOfRangeMessage) {
  const TokenDataset dataset(TextCorpus::open(write("a.txt", "abcdefgh")), {.context_length = 3});
  EXPECT_EQ(error_text<c10::IndexError>([&] { dataset.get(2); }),
            "[cohort] example 2 is out of range for a TokenDataset of 2 examples");
  EXPECT_EQ(error_text<c10::IndexError>([&] { dataset.corpus().bytes(4, 9); }),
            "[cohort] the bytes [4, 9) are not in a text of 8 bytes");
}

}  // namespace
}  // namespace cohort::data
