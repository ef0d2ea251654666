#include "cohort/store/tcp/protocol.h"

#include <fmt/format.h>
#include <cstring>

#include "cohort/base/text/text.h"

namespace cohort::store {
namespace {

// The fields of each query: k key, v value, q number of 8 bytes, d number of 4 bytes, n a count of how often the rest of the
// layout is repeated.
const char* layout_of(Query query) {
  switch (query) {
    case Query::kValidate:
    case Query::kPing:
      return "d";
    case Query::kSet:
    case Query::kAppend:
    case Query::kQueuePush:
      return "kv";
    case Query::kCompareSet:
      return "kvv";
    case Query::kGet:
    case Query::kDeleteKey:
    case Query::kQueuePop:
    case Query::kQueueLen:
      return "k";
    case Query::kAdd:
    case Query::kBarrier:
      return "kq";
    case Query::kCheck:
    case Query::kWait:
    case Query::kMultiGet:
      return "nk";
    case Query::kMultiSet:
      return "nkv";
    case Query::kNumKeys:
    case Query::kCancelWait:
    case Query::kListKeys:
    case Query::kChallenge:
      return "";
    case Query::kProve:
      return "v";
  }
  return nullptr;
}

}  // namespace

bool stores_something(Query query) {
  switch (query) {
    case Query::kSet:
    case Query::kMultiSet:
    case Query::kCompareSet:
    case Query::kAppend:
    case Query::kAdd:
    case Query::kQueuePush:
    case Query::kWait:
    case Query::kBarrier:
      return true;
    default:
      return false;
  }
}

base::Result<std::optional<Request>> RequestReader::next() {
  while (failure_.empty() && (is_begun_ || begin())) {
    if (*field_ == '\0' && repeats_left_ > 1) {
      --repeats_left_;
      field_ = repeated_;
    }
    if (*field_ == '\0') {
      is_begun_ = false;
      drop_taken();
      return std::optional(std::move(request_));
    }
    if (!read_field()) break;
  }
  if (!failure_.empty()) return base::Error(failure_);
  drop_taken();
  return std::optional<Request>();
}

bool RequestReader::begin() {
  if (position_ == bytes_.size()) return false;
  const auto first = static_cast<uint8_t>(bytes_[position_++]);
  field_ = layout_of(static_cast<Query>(first));
  if (!field_) {
    failure_ = fmt::format("a request that begins with byte {} does not belong to the store's protocol", first);
    return false;
  }
  request_ = {};
  request_.query = static_cast<Query>(first);
  repeated_ = nullptr;
  repeats_left_ = 0;
  num_content_bytes_ = 0;
  is_begun_ = true;
  return true;
}

// Returns false if the field is incomplete or refused.
bool RequestReader::read_field() {
  uint64_t number = 0;
  std::string text;
  switch (*field_) {
    case 'n':
      return take_count();
    case 'k':
      if (!take_text(kMaxKeyBytes, &text)) return false;
      request_.keys.push_back(std::move(text));
      break;
    case 'v':
      if (!take_text(kMaxValueBytes, &text)) return false;
      request_.values.push_back(std::move(text));
      break;
    default:
      if (!take_number(*field_ == 'q' ? 8 : 4, &number)) return false;
      request_.number = static_cast<int64_t>(number);
  }
  ++field_;
  return true;
}

bool RequestReader::take_count() {
  if (!take_number(8, &repeats_left_)) return false;
  if (repeats_left_ > kMaxKeys) {
    failure_ = fmt::format("a request with {} keys is refused, {} are allowed", repeats_left_, kMaxKeys);
    return false;
  }
  repeated_ = ++field_;
  if (repeats_left_ == 0) field_ += std::strlen(field_);
  return true;
}

bool RequestReader::take_number(size_t width, uint64_t* number) {
  if (bytes_.size() - position_ < width) return false;
  *number = 0;
  for (size_t i = width; i-- > 0;) *number = *number << 8 | static_cast<uint8_t>(bytes_[position_ + i]);
  position_ += width;
  return true;
}

bool RequestReader::take_text(uint64_t limit, std::string* text) {
  if (!text_size_) {
    uint64_t size = 0;
    if (!take_number(8, &size)) return false;
    if (size > limit) {
      failure_ = fmt::format("a text of {} bytes is refused, {} are allowed", size, limit);
      return false;
    }
    num_content_bytes_ += size;
    if (num_content_bytes_ > kMaxRequestBytes) {
      failure_ = fmt::format("a request of more than {} bytes is refused", kMaxRequestBytes);
      return false;
    }
    text_size_ = size;
  }
  if (bytes_.size() - position_ < *text_size_) return false;
  *text = bytes_.substr(position_, *text_size_);
  position_ += *text_size_;
  text_size_.reset();
  return true;
}

// Removes parsed bytes once they are the larger part, so that each byte is moved at most twice.
void RequestReader::drop_taken() {
  if (position_ == bytes_.size()) {
    std::string().swap(bytes_);
  } else if (position_ > bytes_.size() / 2) {
    bytes_.erase(0, position_);
  } else {
    return;
  }
  position_ = 0;
}

size_t RequestReader::num_bytes_held() const {
  // The text whose size was read last is still to come, or in bytes_.
  return bytes_.size() + (is_begun_ ? static_cast<size_t>(num_content_bytes_ - text_size_.value_or(0)) : 0);
}

void put_number(std::string* bytes, uint64_t number, size_t width) {
  for (size_t i = 0; i < width; ++i) bytes->push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

void put_text(std::string* bytes, std::string_view text) {
  put_number(bytes, text.size(), 8);
  bytes->append(text);
}

void put_texts(std::string* bytes, const std::vector<std::string>& texts) {
  put_number(bytes, texts.size(), 8);
  for (const auto& text : texts) put_text(bytes, text);
}

std::string encode(const Request& request) {
  std::string bytes(1, static_cast<char>(request.query));
  const char* layout = layout_of(request.query);
  size_t repeats = 1;
  if (*layout == 'n') {
    repeats = request.keys.size();
    put_number(&bytes, repeats, 8);
    ++layout;
  }
  size_t num_keys = 0;
  size_t num_values = 0;
  for (size_t i = 0; i < repeats; ++i) {
    for (const char* field = layout; *field != '\0'; ++field) {
      if (*field == 'k') {
        put_text(&bytes, request.keys.at(num_keys++));
      } else if (*field == 'v') {
        put_text(&bytes, request.values.at(num_values++));
      } else {
        put_number(&bytes, static_cast<uint64_t>(request.number), *field == 'q' ? 8 : 4);
      }
    }
  }
  return bytes;
}

std::string greeting(uint32_t number) {
  return encode({.query = Query::kValidate, .keys = {}, .values = {}, .number = kMagic}) +
         encode({.query = Query::kPing, .keys = {}, .values = {}, .number = number});
}

}  // namespace cohort::store
