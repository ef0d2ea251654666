#include "cohort/checkpoint/file/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/checkpoint/temporary_folder.h"
#include "tests/data/error_text.h"

namespace cohort::checkpoint {
namespace {

using test::error_text;
using testing::ElementsAre;

class SafetensorsTest : public testing::Test {
 protected:
  // A file by hand: the header's length, the header, the data.
  std::string write(const std::string& header, const std::string& data) {
    return write_raw(header.size(), header + data);
  }
  std::string write_raw(uint64_t length, const std::string& rest) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return folder_.write("bad.safetensors", bytes + rest);
  }
  // The reason load_file gives for a file made by hand.
  std::string reason(const std::string& header, const std::string& data = "") { return reason_of(write(header, data)); }
  std::string reason_of(const std::string& path) {
    const std::string text = error_text<c10::Error>([&] { load_file(path); });
    const std::string begin = "[cohort] load_file: cannot read \"" + path + "\"\n  caused by: ";
    EXPECT_TRUE(text.starts_with(begin)) << text;
    return text.substr(std::min(begin.size(), text.size()));
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("a.safetensors");
};

TEST_F(SafetensorsTest, EveryDtypeComesBackWithTheSameBytes) {
  const std::vector<at::ScalarType> dtypes{
      at::kDouble,        at::kFloat,           at::kHalf,           at::kBFloat16, at::kLong,
      at::kInt,           at::kShort,           at::kChar,           at::kByte,     at::kBool,
      at::kFloat8_e4m3fn, at::kFloat8_e5m2,     at::kUInt16,         at::kUInt32,   at::kUInt64,
      at::kComplexFloat,  at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz};
  StateDict tensors;
  for (const at::ScalarType dtype : dtypes) {
    tensors.insert(c10::toString(dtype), at::arange(6).remainder(2).view({2, 3}).to(dtype));
  }
  save_file(tensors, path_);
  const StateDict loaded = load_file(path_);
  EXPECT_EQ(loaded.keys(), tensors.keys());
  for (const auto& item : tensors) {
    const at::Tensor& other = loaded[item.key()];
    EXPECT_EQ(other.scalar_type(), item.value().scalar_type());
    EXPECT_EQ(other.sizes(), item.value().sizes());
    EXPECT_EQ(std::memcmp(other.const_data_ptr(), item.value().const_data_ptr(), other.nbytes()), 0) << item.key();
  }
}

TEST_F(SafetensorsTest, KeepsOrderShapesAndMetadata) {
  StateDict tensors;
  tensors.insert("z", at::arange(3));
  tensors.insert("a \"quoted\" \xc3\xa9", at::zeros({2, 0, 4}));
  tensors.insert("m", at::scalar_tensor(1.5, at::kDouble));
  save_file(tensors, path_, {{"epoch", "3"}, {"note", "line\nbreak"}});
  const StateDict loaded = load_file(path_);
  EXPECT_EQ(loaded.keys(), tensors.keys());
  EXPECT_EQ(loaded[1].value().sizes(), (std::vector<int64_t>{2, 0, 4}));
  EXPECT_EQ(loaded["m"].dim(), 0);
  EXPECT_EQ(load_metadata(path_), (FileMetadata{{"epoch", "3"}, {"note", "line\nbreak"}}));
}

TEST_F(SafetensorsTest, NoTensorsAtAll) {
  save_file(StateDict(), path_);
  EXPECT_EQ(load_file(path_).size(), 0u);
  EXPECT_TRUE(load_metadata(path_).empty());
}

TEST_F(SafetensorsTest, TensorsThatAreNotContiguousAreCopied) {
  const at::Tensor matrix = at::arange(6).view({2, 3});
  StateDict tensors;
  tensors.insert("t", matrix.t());
  tensors.insert("conj", at::ones({2}, at::kComplexFloat).mul(c10::complex<float>(1, 2)).conj());
  save_file(tensors, path_);
  const StateDict loaded = load_file(path_);
  EXPECT_TRUE(loaded["t"].equal(matrix.t()));
  EXPECT_TRUE(loaded["t"].is_contiguous());
  EXPECT_TRUE(loaded["conj"].equal(tensors["conj"].resolve_conj()));
}

TEST_F(SafetensorsTest, EveryTensorIsAligned) {
  StateDict tensors;
  tensors.insert("bytes", at::ones({3}, at::kByte));
  tensors.insert("doubles", at::ones({3}, at::kDouble));
  tensors.insert("halves", at::ones({3}, at::kHalf));
  save_file(tensors, path_);
  const std::string bytes = folder_.read("a.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_THAT(bytes.substr(8, length), testing::HasSubstr("\"doubles\":{\"data_offsets\":[0,24]"));
  EXPECT_THAT(bytes.substr(8, length), testing::HasSubstr("\"bytes\":{\"data_offsets\":[30,33]"));
}

TEST_F(SafetensorsTest, LoadedTensorsOwnTheirMemory) {
  StateDict tensors;
  tensors.insert("a", at::ones({4}));
  save_file(tensors, path_);
  const StateDict loaded = load_file(path_);
  std::filesystem::remove(path_);
  loaded["a"].add_(1);
  EXPECT_EQ(loaded["a"].sum().item<float>(), 8);
}

// Whatever the file that was there allowed.
TEST_F(SafetensorsTest, ReplacesAFileWholeByOneForItsOwnerOnly) {
  folder_.write("a.safetensors", "old");
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  StateDict tensors;
  tensors.insert("a", at::ones({4}));
  save_file(tensors, path_);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(folder_.num_files(), 1u);
}

TEST_F(SafetensorsTest, NewFilesAreForTheirOwnerOnly) {
  const mode_t mask = umask(0);
  save_file(StateDict(), path_);
  umask(mask);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(SafetensorsTest, AFifoIsRefusedAtOnceMessage) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const auto text = test::error_text<c10::Error>([&] { load_file(path_); });
  EXPECT_EQ(text, "[cohort] load_file: cannot read \"" + path_ + "\"\n  caused by: it is not a plain file");
}

TEST_F(SafetensorsTest, FollowsALink) {
  folder_.write("real", "old");
  std::filesystem::create_symlink("real", path_);
  save_file(StateDict(), path_);
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_NE(folder_.read("real"), "old");
}

TEST_F(SafetensorsTest, FailureLeavesTheOldFileAndNothingElse) {
  folder_.write("a.safetensors", "old");
  StateDict tensors;
  tensors.insert("not \xff UTF-8", at::ones({4}));
  EXPECT_THAT(
      error_text<c10::Error>([&] { save_file(tensors, path_); }),
      testing::HasSubstr("cannot write \"" + path_ + "\"\n  caused by: a name or metadata text is not UTF-8: "));
  EXPECT_EQ(folder_.read("a.safetensors"), "old");
  EXPECT_EQ(folder_.num_files(), 1u);
}

TEST_F(SafetensorsTest, MissingFolderMessage) {
  EXPECT_EQ(error_text<c10::Error>([&] { save_file(StateDict(), folder_.file("none/a")); }),
            "[cohort] save_file: cannot write \"" + folder_.file("none/a") +
                "\"\n  caused by: cannot create a file in \"" + folder_.file("none") +
                "\": No such file or directory (ENOENT)\n" + "  hint: check that the folder exists and is writable");
  EXPECT_EQ(reason_of(folder_.file("none")), "No such file or directory (ENOENT)");
}

TEST_F(SafetensorsTest, DoesNotReplaceWhatIsNotAFile) {
  EXPECT_THAT(error_text<c10::Error>([&] { save_file(StateDict(), "/dev/null"); }),
              testing::HasSubstr("there is something other than a plain file at \"/dev/null\""));
}

TEST_F(SafetensorsTest, MissingFileSaysWhereItWasLookedForMessage) {
  const auto here = std::filesystem::current_path().string();
  EXPECT_EQ(
      error_text<c10::Error>([] { load_metadata("none.safetensors"); }),
      "[cohort] load_metadata: cannot read \"none.safetensors\"\n  caused by: No such file or directory (ENOENT)\n"
      "  hint: the path is relative to \"" +
          here + "\"");
}

TEST_F(SafetensorsTest, SharedTensorsMessage) {
  const at::Tensor weight = at::ones({4});
  StateDict tensors;
  tensors.insert("head", weight);
  tensors.insert("other", at::ones({4}));
  tensors.insert("embedding", weight.narrow(0, 1, 2));
  EXPECT_EQ(error_text<c10::ValueError>([&] { save_file(tensors, path_); }),
            "[cohort] save_file: some tensors share memory; a file would hold copies that are no longer tied:\n"
            "  \"head\" and \"embedding\"\n"
            "  hint: use save_model(), or clone() one of them, or set shared_tensors to kSaveEach");
  EXPECT_EQ(folder_.num_files(), 0u);
  save_file(tensors, path_, {}, {.shared_tensors = SharedTensors::kSaveEach});
  EXPECT_EQ(load_file(path_).size(), 3u);
}

TEST_F(SafetensorsTest, PartsOfOneTensorThatDoNotOverlapAreFine) {
  const at::Tensor whole = at::arange(10);
  StateDict tensors;
  tensors.insert("a", whole.narrow(0, 0, 5));
  tensors.insert("b", whole.narrow(0, 5, 5));
  save_file(tensors, path_);
  EXPECT_TRUE(load_file(path_)["b"].equal(whole.narrow(0, 5, 5)));
}

TEST_F(SafetensorsTest, TensorsThatCannotBeStoredMessages) {
  const auto text = [&](const std::string& name, const at::Tensor& tensor) {
    StateDict tensors;
    tensors.insert(name, at::Tensor(tensor));
    return error_text<c10::ValueError>([&] { save_file(tensors, path_); });
  };
  EXPECT_EQ(text("a", {}), "[cohort] save_file: tensor \"a\" is undefined");
  EXPECT_EQ(text("a", at::ones({2}).to_sparse()), "[cohort] save_file: tensor \"a\" is sparse; call to_dense() first");
  EXPECT_EQ(text("a", at::ones({2}, at::kMeta)),
            "[cohort] save_file: tensor \"a\" is on the meta device and has no data");
  EXPECT_EQ(text("a", at::ones({2}, at::kComplexDouble)),
            "[cohort] save_file: tensor \"a\" is ComplexDouble, which the safetensors format does not know");
}

TEST_F(SafetensorsTest, TruncatedAndForeignFiles) {
  EXPECT_EQ(reason_of(folder_.write("bad.safetensors", "abc")), "it has only 3 bytes, fewer than the header's length");
  EXPECT_EQ(reason_of(write_raw(50, "{}")), "it claims a header of 50 bytes, but only 2 follow");
  EXPECT_EQ(reason_of(write_raw(UINT64_MAX, "{}")),
            "it claims a header of 18446744073709551615 bytes, the format allows 100000000\n"
            "  hint: check that this is a safetensors file");
  EXPECT_EQ(reason_of(folder_.write("bad.safetensors", std::string("PK\3\4\0\0\0\0 zip", 12))),
            "it is a zip archive, as torch::save and torch.save write\n  hint: read it with torch::load");
}

TEST_F(SafetensorsTest, HeadersThatAreNotWellFormed) {
  EXPECT_EQ(reason(" {}"), "the header does not begin with {");
  EXPECT_THAT(reason("{\"a\":"), testing::StartsWith("the header is not JSON: "));
  EXPECT_LT(reason("{\"" + std::string(100000, '\xff')).size(), 300u);
  EXPECT_EQ(reason("{\"a\":1}"), "tensor \"a\": is not described by an object");
  EXPECT_EQ(reason(R"({"a":{"shape":[],"data_offsets":[0,0]}})"), "tensor \"a\": has no dtype");
  EXPECT_EQ(reason(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "x"),
            "tensor \"a\": unknown dtype \"F4\"");
  EXPECT_EQ(reason(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "x"), "tensor \"a\": has no shape");
  EXPECT_EQ(reason(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x"),
            "tensor \"a\": shape holds -1, which is not a whole number in [0, 2^63)");
  EXPECT_EQ(reason(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "x"),
            "tensor \"a\": data_offsets are not two numbers");
  EXPECT_EQ(reason(R"({"__metadata__":{"a":1}})"), "__metadata__: the value of \"a\" is not a string");
  EXPECT_EQ(reason(R"({"__metadata__":7})"), "__metadata__ is not an object");
}

TEST_F(SafetensorsTest, DuplicateNames) {
  EXPECT_EQ(reason(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                   R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                   "xy"),
            "the name \"a\" comes twice");
  EXPECT_EQ(reason(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "x"),
            "the key \"dtype\" comes twice");
}

TEST_F(SafetensorsTest, PlacesThatDoNotFit) {
  EXPECT_EQ(reason(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", "xxx"),
            "tensor \"a\": data_offsets [2, 1] end before they begin");
  EXPECT_EQ(reason(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "xxxx"),
            "tensor \"a\": data_offsets [0, 8] reach past the 4 bytes of data in the file");
  EXPECT_EQ(reason(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "xxxx"),
            "tensor \"a\": data_offsets [0, 4] hold 4 bytes, but its dtype and shape need 8");
  EXPECT_EQ(reason(R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
            "tensor \"a\": its size overflows 64 bits");
  EXPECT_EQ(reason(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                   R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                   "xxx"),
            "tensor \"b\": data_offsets [1, 3] overlap the tensor before, which ends at 2");
  EXPECT_EQ(reason(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xx"),
            "tensor \"a\": data_offsets [1, 2] leave a gap: the data before ends at 0");
  EXPECT_EQ(reason(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "xx"),
            "the tensors end at byte 1, but the file has 2 bytes of data");
}

TEST_F(SafetensorsTest, BoolsFromAFileAreZeroOrOne) {
  const std::string path =
      write(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", std::string("\0\1\7", 3));
  EXPECT_EQ(load_file(path)["a"].view(at::kByte).sum().item<int64_t>(), 2);
}

}  // namespace
}  // namespace cohort::checkpoint
