#include "cohort/shm/report/pickle.h"

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace cohort::shm {
namespace {

using Json = nlohmann::ordered_json;

class Writer {
 public:
  std::string out = "\x80\x02";

  void put(const Json& value) {
    if (value.is_boolean()) {
      out += value.get<bool>() ? '\x88' : '\x89';
    } else if (value.is_number_integer()) {
      put_int(value.get<int64_t>());
    } else if (value.is_number_float()) {
      out += 'G';  // BINFLOAT, the one that is big-endian
      put_bytes(std::bit_cast<uint64_t>(value.get<double>()), 8, true);
    } else if (value.is_string()) {
      put_text(value);
    } else if (value.is_array()) {
      out += "](";  // EMPTY_LIST, MARK, items, APPENDS
      for (const Json& item : value) put(item);
      out += 'e';
    } else if (value.is_object()) {
      out += "}(";  // EMPTY_DICT, MARK, keys and values, SETITEMS
      for (const auto& [key, item] : value.items()) {
        put_text(key);
        put(item);
      }
      out += 'u';
    } else {
      out += 'N';
    }
  }

 private:
  void put_bytes(uint64_t value, int count, bool is_big_endian = false) {
    for (int place = 0; place < count; ++place) {
      out += static_cast<char>(value >> 8 * (is_big_endian ? count - 1 - place : place) & 0xff);
    }
  }

  void put_int(int64_t value) {
    out += "\x8a\x08";  // LONG1 of 8 bytes
    put_bytes(static_cast<uint64_t>(value), 8);
  }

  void put_text(const Json& text) {
    // dump() is what replaces bytes that are not UTF-8, parse() takes away its quotes.
    const std::string clean = Json::parse(text.dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
    out += 'X';
    put_bytes(clean.size(), 4);
    out += clean;
  }
};

}  // namespace

std::string pickle(const Json& value) {
  Writer writer;
  writer.put(value);
  return writer.out + '.';
}

}  // namespace cohort::shm
