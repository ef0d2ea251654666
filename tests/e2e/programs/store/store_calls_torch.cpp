// store_calls_torch PORT: the calls of store_calls.h, by the TCPStore of the LibTorch that this is compiled with.
// store_calls_torch: its server, on a port that it prints, until standard input ends.
//
// Compiled by ../../store/store_releases_test.py, once for each release.
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <type_traits>

#include "tests/e2e/programs/store/store_calls.h"

namespace cohort::store {
namespace {

using base::Result;
using Bytes = std::vector<uint8_t>;
using Keys = std::vector<std::string>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_from(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

std::string without_slashes(std::string text) {
  std::erase(text, '/');
  return text;
}

// An exception becomes an error, with the text alone.
template <class Call>
auto guarded(const Call& call) -> Result<decltype(call())> {
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return {};
    } else {
      return call();
    }
  } catch (const c10::Error& error) {
    return base::Error(without_slashes(error.what_without_backtrace()));  // the prefix of its keys
  }
}

template <class Torch>
class TorchStore {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  // 2.11 has none.
  static constexpr bool kHasBarrier = requires(Torch & store) { store.barrier("", int64_t{1}, milliseconds(1)); };

  Result<void> set(const std::string& key, const std::string& value) {
    return guarded([&] { store_->set(key, bytes_of(value)); });
  }
  Result<std::string> get(const std::string& key) {
    return guarded([&] { return text_from(store_->get(key)); });
  }
  Result<int64_t> add(const std::string& key, int64_t number) {
    return guarded([&] { return store_->add(key, number); });
  }
  Result<std::string> compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
    return guarded([&] { return text_from(store_->compareSet(key, bytes_of(expected), bytes_of(desired))); });
  }
  Result<bool> delete_key(const std::string& key) {
    return guarded([&] { return store_->deleteKey(key); });
  }
  Result<bool> check(const Keys& keys) {
    return guarded([&] { return store_->check(keys); });
  }
  Result<int64_t> num_keys() {
    return guarded([&] { return store_->getNumKeys(); });
  }
  Result<void> wait(const Keys& keys, milliseconds timeout) {
    return guarded([&] { store_->wait(keys, timeout); });
  }
  Result<void> append(const std::string& key, const std::string& value) {
    return guarded([&] { store_->append(key, bytes_of(value)); });
  }
  Result<Keys> multi_get(const Keys& keys) {
    return guarded([&] {
      Keys values;
      for (const auto& value : store_->multiGet(keys)) values.push_back(text_from(value));
      return values;
    });
  }
  Result<void> multi_set(const Keys& keys, const Keys& values) {
    std::vector<Bytes> bytes;
    for (const auto& value : values) bytes.push_back(bytes_of(value));
    return guarded([&] { store_->multiSet(keys, bytes); });
  }
  Result<void> queue_push(const std::string& key, const std::string& value) {
    return guarded([&] { store_->queuePush(key, bytes_of(value)); });
  }
  Result<std::optional<std::string>> queue_pop(const std::string& key, bool block) {
    try {
      return std::optional(text_from(store_->queuePop(key, block)));
    } catch (const c10::Error&) {
      return std::optional<std::string>();
    }
  }
  Result<int64_t> queue_len(const std::string& key) {
    return guarded([&] { return store_->queueLen(key); });
  }
  Result<Keys> list_keys() {
    return guarded([&] { return store_->listKeys(); });
  }
  Result<void> barrier(const std::string& key, int64_t world_size, milliseconds timeout) {
    if constexpr (kHasBarrier) {
      return guarded([&] { static_cast<Torch&>(*store_).barrier(key, world_size, timeout); });
    } else {
      return base::Error("no barrier");
    }
  }
  Result<std::unique_ptr<TorchStore>> clone() {
    return guarded([&] { return std::make_unique<TorchStore>(store_->clone()); });
  }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

void serve() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto server = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  std::cout << server->getPort() << "\n" << std::flush;
  std::string rest;
  while (std::getline(std::cin, rest)) continue;
}

void call(int port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(20);
  TorchStore<c10d::TCPStore> store(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options));
  call_values(store);
  call_queues(store);
  call_waits(store, store.kHasBarrier);
}

}  // namespace
}  // namespace cohort::store

int main(int argc, char** argv) {
  if (argc == 1) {
    cohort::store::serve();
  } else {
    cohort::store::call(std::atoi(argv[1]));
  }
  std::cout << std::flush;
  std::_Exit(0);  // no wait for the threads of LibTorch
}
