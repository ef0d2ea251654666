/// The wire protocol of c10d's TCPStore (torch/csrc/distributed/c10d/TCPStore.cpp and TCPStoreLibUvBackend.cpp of PyTorch 2.13),
/// as bytes: parses a client's requests piece by piece, and writes a server's answers. No sockets, no table.
///
/// A request is one byte for its kind, then its fields; numbers are little-endian. A text is its length (8 bytes) and its bytes;
/// a list of texts is their number (8 bytes) and the texts. A connection begins with kValidate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::store {

/// The first byte of a request. The comments list the fields, then the answer, if there is one.
enum class Query : uint8_t {
  kValidate = 0,     ///< magic (4 bytes)
  kSet = 1,          ///< key, value
  kCompareSet = 2,   ///< key, expected, desired; value
  kGet = 3,          ///< key; value, empty if there is none
  kAdd = 4,          ///< key, number (8 bytes); the sum (8 bytes)
  kCheck = 5,        ///< keys; 0 if all exist, else 1 (1 byte)
  kWait = 6,         ///< keys; kReady once all exist (1 byte)
  kNumKeys = 7,      ///< -; number (8 bytes)
  kDeleteKey = 8,    ///< key; number of deleted keys (8 bytes)
  kAppend = 9,       ///< key, value
  kMultiGet = 10,    ///< keys; a value for each
  kMultiSet = 11,    ///< number of pairs, then key and value of each
  kCancelWait = 12,  ///< -; kCanceled, also when kReady has just been sent (1 byte)
  kPing = 13,        ///< number (4 bytes); the same
  kQueuePush = 14,   ///< key, value
  kQueuePop = 15,    ///< key; number of entries before (8 bytes), then the first of them, if any
  kQueueLen = 16,    ///< key; number (8 bytes)
  kListKeys = 17,    ///< -; keys
  kBarrier = 18,     ///< key, number of clients (8 bytes); kReady once so many have arrived (1 byte)

  // Cohort's own requests: how a client proves that it has the server's token (token.h).
  kChallenge = 64,  ///< -; 1 if the server has a token, else 0 (1 byte), then a random number (32 bytes)
  kProve =
      65,  ///< a value: a random number, the client's proof; kReady or kCanceled (1 byte), the server's proof (32 bytes)
};

/// Whether the server stores something of such a request: its key, its value, or its waiter.
bool stores_something(Query query);

inline constexpr uint32_t kMagic = 0x3C85F7CE;
/// Answers to kWait, kBarrier and kCancelWait.
inline constexpr char kReady = 0;
inline constexpr char kCanceled = 1;

/// Limits of the server: PyTorch's, and one for a complete request.
inline constexpr uint64_t kMaxKeyBytes = 8 * 1024;
inline constexpr uint64_t kMaxValueBytes = 8 * 1024 * 1024;
inline constexpr uint64_t kMaxKeys = 128 * 1024;
inline constexpr uint64_t kMaxRequestBytes = 64 * 1024 * 1024;
inline constexpr uint64_t kMaxAnswerBytes = 256 * 1024 * 1024;

struct Request {
  Query query = Query::kValidate;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  int64_t number = 0;
};

/// Parses the bytes of one connection as they arrive. Keeps only the request that is still incomplete.
class RequestReader {
 public:
  void feed(std::string_view bytes) { bytes_.append(bytes); }
  /// Returns the next complete request, or nothing until more bytes arrive. An error is final: the connection can no longer be
  /// used.
  base::Result<std::optional<Request>> next();
  size_t num_bytes_held() const;

 private:
  bool begin();
  bool read_field();
  bool take_number(size_t width, uint64_t* number);
  bool take_text(uint64_t limit, std::string* text);
  bool take_count();
  void drop_taken();

  std::string bytes_;
  size_t position_ = 0;  ///< the number of bytes of bytes_ that have been parsed
  Request request_;
  bool is_begun_ = false;
  const char* field_ = "";          ///< the next field of the layout
  const char* repeated_ = nullptr;  ///< where the repeated part of the layout begins
  uint64_t repeats_left_ = 0;
  std::optional<uint64_t> text_size_;  ///< of the text whose bytes have not all arrived
  uint64_t num_content_bytes_ = 0;
  std::string failure_;
};

/// Appends a part of a request or an answer.
void put_number(std::string* bytes, uint64_t number, size_t width);
void put_text(std::string* bytes, std::string_view text);
void put_texts(std::string* bytes, const std::vector<std::string>& texts);
/// Returns a complete request, as a client sends it.
std::string encode(const Request& request);
/// Returns the bytes with which a client opens a connection: kValidate, then kPing with a number that only a store sends back.
std::string greeting(uint32_t number);

}  // namespace cohort::store
