// What every store does, whatever it is made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "tests/store/etcd_server.h"
#include "tests/store/store_kinds.h"
#include "tests/store/times.h"

namespace cohort::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr int kNumThreads = 4;

class StoreConformance : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("etcd") && !EtcdServer::is_installed()) GTEST_SKIP() << EtcdServer::kSkipReason;
    kind_ = make_store_kind(GetParam());
    store_ = kind_->open();
  }

  // Each in a thread, with a client of its own.
  template <class Work>
  void run_threads(const Work& work) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kNumThreads; ++i) {
      threads.emplace_back([this, &work, i] { work(i, *kind_->open()); });
    }
    for (auto& thread : threads) thread.join();
  }

  std::unique_ptr<StoreKind> kind_;
  std::unique_ptr<Store> store_;
};

TEST_P(StoreConformance, KeysAndValuesAreAnyBytes) {
  const std::string bytes("\0\xff/\n\"\x80", 6);
  for (const auto& key : {std::string("k"), bytes, std::string("a/b"), std::string()}) {
    ASSERT_TRUE(store_->set(key, bytes + key).ok());
    EXPECT_EQ(*store_->get(key), bytes + key);
  }
  ASSERT_TRUE(store_->set("k", "").ok());
  EXPECT_EQ(*store_->get("k"), "");
  EXPECT_THAT(*store_->list_keys(), UnorderedElementsAre("k", bytes, "a/b", ""));
  const std::string large(1'000'000, 'x');
  ASSERT_TRUE(store_->set("large", large).ok());
  EXPECT_EQ(*kind_->open()->get("large"), large);
}

TEST_P(StoreConformance, AddCounts) {
  EXPECT_EQ(*store_->add("n", 3), 3);
  EXPECT_EQ(*store_->add("n", -5), -2);
  EXPECT_EQ(*store_->get("n"), "-2");
  ASSERT_TRUE(store_->set("n", "40").ok());
  EXPECT_EQ(*store_->add("n", 2), 42);
}

TEST_P(StoreConformance, CompareSetTellsWhatIsThere) {
  EXPECT_EQ(*store_->compare_set("c", "x", "z"), "x");
  EXPECT_FALSE(*store_->check({"c"}));
  EXPECT_EQ(*store_->compare_set("c", "", "x"), "x");
  EXPECT_EQ(*store_->compare_set("c", "", "z"), "x");
  EXPECT_EQ(*store_->compare_set("c", "x", "y"), "y");
  EXPECT_EQ(*store_->compare_set("c", "x", "z"), "y");
  EXPECT_EQ(*store_->compare_set("c", "y", ""), "");
  EXPECT_EQ(*store_->get("c"), "");
}

TEST_P(StoreConformance, KeysComeAndGo) {
  EXPECT_TRUE(*store_->check({}));
  EXPECT_FALSE(*store_->delete_key("k"));
  ASSERT_TRUE(store_->multi_set({"k", "l", "m", "k"}, {"1", "2", "3", "4"}).ok());
  EXPECT_EQ(*store_->get("k"), "4");
  EXPECT_TRUE(*store_->check({"k", "l"}));
  EXPECT_FALSE(*store_->check({"k", "none"}));
  EXPECT_EQ(*store_->num_keys(), 3);
  const auto other = kind_->open();
  EXPECT_TRUE(*other->delete_key("l"));
  EXPECT_FALSE(*store_->delete_key("l"));
  EXPECT_FALSE(*store_->check({"l"}));
  EXPECT_EQ(*store_->num_keys(), 2);
  EXPECT_THAT(*store_->list_keys(), UnorderedElementsAre("k", "m"));
}

TEST_P(StoreConformance, ManyAtOnce) {
  Store::Keys keys;
  Store::Values values;
  for (int i = 0; i < 250; ++i) {
    keys.push_back("k" + std::to_string(i));
    values.push_back(std::to_string(i * i));
  }
  ASSERT_TRUE(store_->multi_set(keys, values).ok());
  EXPECT_EQ(*kind_->open()->multi_get(keys), values);
  EXPECT_TRUE(*store_->check(keys));
  EXPECT_THAT(*store_->multi_get({}), IsEmpty());
  EXPECT_EQ(store_->multi_set({"a", "b"}, {"1"}).error().message(), "multi_set got 2 keys and 1 values");
}

TEST_P(StoreConformance, AppendAddsToTheEnd) {
  ASSERT_TRUE(store_->append("a", "b").ok());
  ASSERT_TRUE(store_->append("a", "").ok());
  ASSERT_TRUE(store_->append("a", "c").ok());
  EXPECT_EQ(*kind_->open()->get("a"), "bc");
}

TEST_P(StoreConformance, QueuesGiveBackInOrder) {
  EXPECT_EQ(*store_->queue_pop("q", false), std::nullopt);
  for (const auto* const value : {"1", "", "3"}) ASSERT_TRUE(store_->queue_push("q", value).ok());
  ASSERT_TRUE(store_->queue_push("q/1", "other").ok());
  EXPECT_EQ(*store_->queue_len("q"), 3);
  EXPECT_EQ(*store_->queue_len("none"), 0);
  EXPECT_TRUE(*store_->check({"q"}));
  EXPECT_TRUE(store_->wait({"q"}, kHangLimit).ok());
  EXPECT_EQ(*store_->num_keys(), 0);
  const auto other = kind_->open();
  EXPECT_EQ(*other->queue_pop("q", true), "1");
  EXPECT_EQ(*store_->queue_pop("q", false), "");
  EXPECT_EQ(*other->queue_pop("q", true), "3");
  EXPECT_FALSE(*store_->check({"q"}));
}

TEST_P(StoreConformance, TimeoutsNameTheKeysMessage) {
  const auto keys = kind_->shown("a") + ", " + kind_->shown("b");
  const auto waited = store_->wait({"a", "b"}, kAWhile);
  EXPECT_EQ(waited.error().describe(), "wait timeout after 100ms, keys: " + keys);
  EXPECT_TRUE(is_timeout(waited.error()));
  store_->set_timeout(kAWhile);
  EXPECT_EQ(store_->timeout(), kAWhile);
  EXPECT_EQ(store_->get("a").error().message(), "wait timeout after 100ms, keys: " + kind_->shown("a"));
  EXPECT_EQ(store_->multi_get({"a", "b"}).error().message(), "wait timeout after 100ms, keys: " + keys);
  EXPECT_EQ(store_->queue_pop("a", true).error().message(), "wait timeout after 100ms, keys: " + kind_->shown("a"));
  const auto met = store_->barrier("both", 2, kAWhile);
  EXPECT_EQ(met.error().message(), "barrier timeout after 100ms, key: " + kind_->shown("both"));
  EXPECT_TRUE(is_timeout(met.error()));
  ASSERT_TRUE(store_->set("a", "1").ok());
  EXPECT_EQ(*store_->get("a"), "1");
  EXPECT_FALSE(store_->wait({"a", "b"}, milliseconds(0)).ok());
  EXPECT_TRUE(store_->wait({"a"}, milliseconds(0)).ok());
}

TEST_P(StoreConformance, WaitersAreWokenByOtherClients) {
  std::thread other([this] {
    const auto store = kind_->open();
    std::this_thread::sleep_for(kAWhile);
    ASSERT_TRUE(store->set("b", "1").ok());
    ASSERT_TRUE(store->set("a", "2").ok());
    ASSERT_TRUE(store->queue_push("q", "3").ok());
    ASSERT_TRUE(store->compare_set("c", "", "4").ok());
    ASSERT_TRUE(store->append("d", "5").ok());
  });
  EXPECT_TRUE(store_->wait({"a", "b"}, kHangLimit).ok());
  EXPECT_EQ(*store_->get("a"), "2");
  EXPECT_EQ(*store_->queue_pop("q", true), "3");
  EXPECT_EQ(*store_->get("c"), "4");
  EXPECT_EQ(*store_->get("d"), "5");
  other.join();
}

TEST_P(StoreConformance, TheLongestTimeIsNoLimit) {
  store_->set_timeout(milliseconds::max());
  const auto waiting = store_->clone();
  ASSERT_TRUE(waiting.ok()) << waiting.error().describe();
  std::thread other([this] {
    for (const auto* key : {"a", "b", "c"}) {
      std::this_thread::sleep_for(kAWhile);
      ASSERT_TRUE(store_->set(key, key).ok());
    }
    std::this_thread::sleep_for(kAWhile);
    ASSERT_TRUE(store_->queue_push("q", "3").ok());
    std::this_thread::sleep_for(kAWhile);
    EXPECT_TRUE(store_->barrier("met", 2, milliseconds::max()).ok());
  });
  EXPECT_TRUE((*waiting)->wait({"a"}, milliseconds::max()).ok());
  EXPECT_EQ((*waiting)->get("b").value(), "b");
  EXPECT_THAT((*waiting)->multi_get({"a", "c"}).value(), ElementsAre("a", "c"));
  EXPECT_EQ((*waiting)->queue_pop("q", true).value(), "3");
  EXPECT_TRUE((*waiting)->barrier("met", 2, milliseconds::max()).ok());
  other.join();
}

TEST_P(StoreConformance, ThreadsThatRaceLoseNothing) {
  constexpr int kTimes = 25;
  std::mutex mutex;
  std::set<int64_t> sums;
  run_threads([&](int thread, Store& store) {
    for (int k = 0; k < kTimes; ++k) {
      const auto sum = store.add("sum", 1);
      ASSERT_TRUE(sum.ok()) << sum.error().describe();
      const std::lock_guard lock(mutex);
      sums.insert(*sum);
    }
    ASSERT_TRUE(store.append("all", "x").ok());
    // Takes turns by compare_set alone. Each thread has a letter: two that wanted the same text would both believe they wrote it.
    for (int k = 0; k < kTimes;) {
      const auto before = store.check({"turn"}).value() ? store.get("turn").value() : "";
      const auto wanted = before + static_cast<char>('a' + thread);
      k += *store.compare_set("turn", before, wanted) == wanted ? 1 : 0;
    }
  });
  EXPECT_EQ(sums.size(), kNumThreads * kTimes);
  EXPECT_EQ(*store_->get("sum"), std::to_string(kNumThreads * kTimes));
  EXPECT_EQ(*store_->get("all"), std::string(kNumThreads, 'x'));
  const auto turns = *store_->get("turn");
  EXPECT_EQ(turns.size(), static_cast<size_t>(kNumThreads * kTimes));
  for (int thread = 0; thread < kNumThreads; ++thread) {
    EXPECT_EQ(std::count(turns.begin(), turns.end(), static_cast<char>('a' + thread)), kTimes) << turns;
  }
}

TEST_P(StoreConformance, AnEntryOfAQueueIsForOne) {
  constexpr int kEntries = 10;
  std::mutex mutex;
  std::multiset<std::string> got;
  run_threads([&](int i, Store& store) {
    for (int k = 0; k < kEntries; ++k) {
      ASSERT_TRUE(store.queue_push("q", std::to_string(kEntries * i + k)).ok());
      const auto value = store.queue_pop("q", true);
      ASSERT_TRUE(value.ok()) << value.error().describe();
      const std::lock_guard lock(mutex);
      got.insert(**value);
    }
  });
  EXPECT_EQ(got.size(), kEntries * kNumThreads);
  EXPECT_EQ(std::set<std::string>(got.begin(), got.end()).size(), kEntries * kNumThreads);
  EXPECT_EQ(*store_->queue_len("q"), 0);
}

TEST_P(StoreConformance, ABarrierHoldsUntilAllHaveCome) {
  run_threads([&](int, Store& store) {
    for (int round = 0; round < 3; ++round) {
      const auto name = std::to_string(round);
      ASSERT_TRUE(store.add("come" + name, 1).ok());
      const auto met = store.barrier("barrier" + name, kNumThreads, kHangLimit);
      ASSERT_TRUE(met.ok()) << met.error().describe();
      EXPECT_EQ(*store.add("come" + name, 0), kNumThreads);
    }
  });
}

TEST_P(StoreConformance, ACloneWaitsForNobody) {
  store_->set_timeout(kHangLimit);
  const auto clone = store_->clone().value();
  EXPECT_EQ(clone->timeout(), kHangLimit);
  std::thread waiting([&] { EXPECT_TRUE(store_->wait({"later"}, kHangLimit).ok()); });
  std::this_thread::sleep_for(kAWhile);
  ASSERT_TRUE(clone->set("later", "1").ok());
  waiting.join();
  store_.reset();
  EXPECT_EQ(*clone->get("later"), "1");
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance, testing::Values("hash", "file", "prefix", "tcp", "etcd"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cohort::store
