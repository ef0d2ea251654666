/// Every operation of a store, and what it says; ../../store/store_python_calls.py makes the same calls by PyTorch's client.
///
/// For stores with the functions of cohort::store::Store.
#pragma once

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::store {

using std::chrono::milliseconds;

inline std::string text_of(const std::string& value) { return value; }
inline std::string text_of(bool value) { return value ? "True" : "False"; }
inline std::string text_of(int64_t value) { return std::to_string(value); }
inline std::string text_of(std::vector<std::string> values) {
  std::sort(values.begin(), values.end());
  std::string text;
  for (const auto& value : values) text += (text.empty() ? "" : " ") + value;
  return text;
}
inline std::string text_of(const std::optional<std::string>& value) { return value.value_or("queue is empty"); }

inline void say(const char* what, const base::Result<void>& result) {
  std::cout << what << " -> " << (result ? "done" : result.error().message()) << "\n" << std::flush;
}
template <class T>
void say(const char* what, const base::Result<T>& result) {
  std::cout << what << " -> " << (result ? text_of(*result) : result.error().message()) << "\n" << std::flush;
}

template <class Store>
void call_values(Store& store) {
  say("set", store.set("k", "v"));
  say("get", store.get("k"));
  say("add", store.add("n", 3));
  say("add", store.add("n", -5));
  say("get the sum", store.get("n"));
  say("compare_set nothing", store.compare_set("c", "", "x"));
  say("compare_set equal", store.compare_set("c", "x", "y"));
  say("compare_set different", store.compare_set("c", "x", "z"));
  say("compare_set expecting what is not", store.compare_set("c2", "x", "z"));
  say("check", store.check({"k", "c2"}));
  say("check", store.check({"k", "n"}));
  say("check nothing", store.check({}));
  say("num_keys", store.num_keys());
  say("delete_key", store.delete_key("k"));
  say("delete_key", store.delete_key("k"));
  say("append", store.append("a", "b"));
  say("append", store.append("a", "c"));
  say("multi_get", store.multi_get({"a", "c"}));
  say("multi_set", store.multi_set({"p", "q"}, {"1", "2"}));
  say("get", store.get("q"));
  say("list_keys", store.list_keys());
}

template <class Store>
void call_queues(Store& store) {
  say("queue_push", store.queue_push("qq", "1"));
  say("queue_push", store.queue_push("qq", "2"));
  say("queue_len", store.queue_len("qq"));
  say("check", store.check({"qq"}));
  say("queue_pop", store.queue_pop("qq", true));
  say("queue_pop", store.queue_pop("qq", false));
  say("queue_pop", store.queue_pop("qq", false));
  say("queue_len", store.queue_len("none"));
}

template <class Store>
void call_waits(Store& store, bool has_barrier = true) {
  say("wait", store.wait({"z", "c"}, milliseconds(100)));
  if (has_barrier) {
    say("barrier of one", store.barrier("alone", 1, milliseconds(1000)));
    say("barrier of two", store.barrier("both", 2, milliseconds(100)));
    say("the count of a barrier", store.get("both"));
    say("barrier of two", store.barrier("both", 2, milliseconds(1000)));
  }
  const auto other = store.clone();
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    (void)(*other)->set("later", "1");
  });
  say("wait for another client", store.wait({"later"}, milliseconds(20000)));
  later.join();
  say("get", store.get("later"));
  say("add to a text", store.add("a", 1).ok() ? base::Result<void>() : base::Error("refused"));
}

}  // namespace cohort::store
