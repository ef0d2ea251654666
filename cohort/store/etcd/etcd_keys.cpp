#include "cohort/store/etcd/etcd_keys.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <random>

#include "cohort/base/text/text.h"
#include "cohort/store/tls/base64.h"

namespace cohort::store {

using nlohmann::json;

std::string EtcdKeys::queue(const std::string& key) const {
  return fmt::format("{}/queues/{}:{}/", root_, key.size(), key);
}

json one_key(const std::string& key) { return {{"key", to_base64(key)}}; }

json all_keys_under(const std::string& prefix) {
  auto end = prefix;
  ++end.back();  // a slash
  return {{"key", to_base64(prefix)}, {"range_end", to_base64(end)}};
}

json put_of(const std::string& key, const std::string& value, int64_t lease) {
  return {{"key", to_base64(key)}, {"value", to_base64(value)}, {"lease", std::to_string(lease)}};
}

json transaction(json compare, json success, json failure) {
  return {
      {"compare", json::array({std::move(compare)})}, {"success", std::move(success)}, {"failure", std::move(failure)}};
}

json is_unchanged_since(const std::string& key, int64_t revision) {
  return {{"key", to_base64(key)}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", std::to_string(revision)}};
}

json has_value(const std::string& key, const std::string& value) {
  return {{"key", to_base64(key)}, {"target", "VALUE"}, {"result", "EQUAL"}, {"value", to_base64(value)}};
}

std::string random_name() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::random_device random;
  std::string name;
  for (int i = 0; i < 32; ++i) name.push_back(kDigits[random() & 15]);
  return name;
}

}  // namespace cohort::store
