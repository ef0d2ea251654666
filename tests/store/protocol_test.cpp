#include "cohort/store/tcp/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace cohort::store {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Request make(Query query, std::vector<std::string> keys = {}, std::vector<std::string> values = {},
             int64_t number = 0) {
  return {query, std::move(keys), std::move(values), number};
}

std::vector<Request> one_of_each() {
  return {make(Query::kValidate, {}, {}, kMagic),
          make(Query::kPing, {}, {}, 4711),
          make(Query::kSet, {"k"}, {std::string("a\0b", 3)}),
          make(Query::kCompareSet, {"k"}, {"", "new"}),
          make(Query::kGet, {""}),
          make(Query::kAdd, {"n"}, {}, -5),
          make(Query::kCheck, {"a", "b"}),
          make(Query::kCheck),
          make(Query::kWait, {"a"}),
          make(Query::kNumKeys),
          make(Query::kDeleteKey, {"a"}),
          make(Query::kAppend, {"a"}, {"x"}),
          make(Query::kMultiGet, {"a", "b", "c"}),
          make(Query::kMultiSet, {"a", "b"}, {"1", "2"}),
          make(Query::kCancelWait),
          make(Query::kQueuePush, {"q"}, {"1"}),
          make(Query::kQueuePop, {"q"}),
          make(Query::kQueueLen, {"q"}),
          make(Query::kListKeys),
          make(Query::kBarrier, {"b"}, {}, 3)};
}

void expect_equal(const Request& got, const Request& expected) {
  EXPECT_EQ(got.query, expected.query);
  EXPECT_EQ(got.keys, expected.keys);
  EXPECT_EQ(got.values, expected.values);
  EXPECT_EQ(got.number, expected.number);
}

TEST(StoreProtocol, BytesAreThoseOfPyTorchsClient) {
  // Captured between PyTorch 2.13's client and server.
  EXPECT_EQ(encode(make(Query::kValidate, {}, {}, kMagic)), std::string("\x00\xce\xf7\x85\x3c", 5));
  EXPECT_EQ(encode(make(Query::kAdd, {"/n"}, {}, 3)), std::string("\x04\x02\0\0\0\0\0\0\0/n\x03\0\0\0\0\0\0\0", 19));
  EXPECT_EQ(encode(make(Query::kCheck, {"/k", "/z"})),
            std::string("\x05\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k\x02\0\0\0\0\0\0\0/z", 29));
  EXPECT_EQ(encode(make(Query::kMultiSet, {"/p", "/q"}, {"1", "2"})),
            std::string("\x0b\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/p\x01\0\0\0\0\0\0\0"
                        "1\x02\0\0\0\0\0\0\0/q\x01\0\0\0\0\0\0\0"
                        "2",
                        47));
  EXPECT_EQ(encode(make(Query::kBarrier, {"/bar"}, {}, 1)),
            std::string("\x12\x04\0\0\0\0\0\0\0/bar\x01\0\0\0\0\0\0\0", 21));
}

TEST(StoreProtocol, RequestsComeBackHoweverTheirBytesArrive) {
  const auto requests = one_of_each();
  std::string bytes;
  for (const auto& request : requests) bytes += encode(request);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, bytes.size()}) {
    RequestReader reader;
    std::vector<Request> got;
    for (size_t begin = 0; begin < bytes.size(); begin += piece) {
      reader.feed(std::string_view(bytes).substr(begin, piece));
      while (true) {
        auto next = reader.next();
        ASSERT_TRUE(next.ok());
        if (!*next) break;
        got.push_back(std::move(**next));
      }
    }
    ASSERT_EQ(got.size(), requests.size());
    for (size_t i = 0; i < got.size(); ++i) expect_equal(got[i], requests[i]);
    EXPECT_EQ(reader.num_bytes_held(), 0);
  }
}

std::string problem_of(std::string_view bytes) {
  RequestReader reader;
  reader.feed(bytes);
  for (int i = 0; i < 10; ++i) {
    const auto next = reader.next();
    if (!next) return next.error().message();
  }
  return "";
}

TEST(StoreProtocol, SizesAreBoundedBeforeTheyAreBelievedMessage) {
  std::string long_key(1, static_cast<char>(Query::kGet));
  put_number(&long_key, kMaxKeyBytes + 1, 8);
  EXPECT_EQ(problem_of(long_key), "a text of 8193 bytes is refused, 8192 are allowed");

  std::string long_value(1, static_cast<char>(Query::kSet));
  put_text(&long_value, "k");
  put_number(&long_value, uint64_t{1} << 63, 8);
  EXPECT_EQ(problem_of(long_value), "a text of 9223372036854775808 bytes is refused, 8388608 are allowed");

  std::string many_keys(1, static_cast<char>(Query::kWait));
  put_number(&many_keys, kMaxKeys + 1, 8);
  EXPECT_EQ(problem_of(many_keys), "a request with 131073 keys is refused, 131072 are allowed");

  std::string many_values(1, static_cast<char>(Query::kMultiSet));
  put_number(&many_values, 9, 8);
  const std::string value(kMaxValueBytes, 'x');
  for (int i = 0; i < 9; ++i) {
    put_text(&many_values, "");
    put_text(&many_values, value);
  }
  EXPECT_EQ(problem_of(many_values), "a request of more than 67108864 bytes is refused");

  EXPECT_EQ(problem_of("GET / HTTP/1.1\r\n"),
            "a request that begins with byte 71 does not belong to the store's protocol");
  EXPECT_EQ(problem_of(encode(make(Query::kSet, {"k"}, {"v"}))), "");
}

TEST(StoreProtocol, SizesAsLargeAsAllowedAreTaken) {
  const std::string key(kMaxKeyBytes, 'k');
  const std::string value(kMaxValueBytes, 'v');
  const auto full = kMaxRequestBytes / kMaxValueBytes;
  for (const auto& request :
       {make(Query::kSet, {key}, {value}), make(Query::kCheck, std::vector<std::string>(kMaxKeys)),
        make(Query::kMultiSet, std::vector<std::string>(full), std::vector<std::string>(full, value))}) {
    RequestReader reader;
    reader.feed(encode(request));
    const auto next = reader.next();
    ASSERT_TRUE(next.ok()) << next.error().describe();
    ASSERT_TRUE(next->has_value());
    expect_equal(**next, request);
  }
}

// Whatever comes, the reader ends in an error or waits for more, and holds no more than it was fed.
TEST(StoreProtocol, GarbageEndsInAnErrorOrWaitsForMore) {
  std::mt19937 random(5);
  for (int run = 0; run < 20000; ++run) {
    RequestReader reader;
    std::string bytes(random() % 200, '\0');
    for (auto& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 20);
    reader.feed(bytes);
    size_t count = 0;
    while (true) {
      auto next = reader.next();
      if (!next || !*next) break;
      ASSERT_LE(++count, bytes.size());
    }
    ASSERT_FALSE(reader.next().ok() && reader.next()->has_value());
  }
}

}  // namespace
}  // namespace cohort::store
