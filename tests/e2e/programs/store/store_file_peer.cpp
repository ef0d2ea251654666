// store_file_peer PATH [forever]: one of two users of a file store; the other is ../../store/store_file_test.py with PyTorch's.
// "forever": counts until it is killed.
#include <iostream>

#include "cohort/store/file/file_store.h"

namespace {

template <class T>
T must(cohort::base::Result<T> result) {
  if (result) return std::move(*result);
  std::cout << result.error().describe() << "\n" << std::flush;
  std::exit(1);
}

void must(const cohort::base::Result<void>& result) {
  if (result) return;
  std::cout << result.error().describe() << "\n" << std::flush;
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cohort::store;
  const auto store = must(FileStore::open({.path = argv[1], .num_workers = 2, .timeout = std::chrono::seconds(60)}));
  std::cout << "python says " << must(store->get("python")) << "\n" << std::flush;
  while (argc > 2) must(store->add("count", 1));
  must(store->set("cohort", std::string("a\0b", 3)));
  for (int i = 0; i < 200; ++i) must(store->add("count", 1));
  std::cout << "turn " << must(store->compare_set("turn", "python", "cohort")) << "\n" << std::flush;
  std::cout << "gone " << must(store->check({"gone"})) << "\n" << std::flush;
  must(store->append("text", "cohort"));
  must(store->queue_push("queue", "ours alone"));
  must(store->barrier("end", 2, std::chrono::seconds(60)));
  std::cout << "count " << must(store->get("count")) << "\n" << std::flush;
  must(store->barrier("end of all", 2, std::chrono::seconds(60)));
}
